from ._launch import Studio as Studio, studio as studio
from ._saved_files import Source as Source
from ._server import StudioServer as StudioServer
from ._session import Session as Session

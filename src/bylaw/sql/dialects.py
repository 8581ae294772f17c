from bylaw.scoring._dialects import *

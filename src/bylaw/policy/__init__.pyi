from ._explanation import Explanation as Explanation, explain as explain
from ._policy import Policy as Policy, compute_probabilities as compute_probabilities
from ._provenance import (
    Fingerprint as Fingerprint,
    Look as Look,
    TableSum as TableSum,
    hash_evidence as hash_evidence,
    hash_features as hash_features,
    shares_rows as shares_rows,
    versions as versions,
)
from ._row_maps import as_one_type as as_one_type
from ._sampling import hash_ids as hash_ids
from ._serialization import (
    compute_digest as compute_digest,
    feature_map_to_dict as feature_map_to_dict,
    frequencies_to_list as frequencies_to_list,
    guarantee_to_dict as guarantee_to_dict,
    problem_to_dict as problem_to_dict,
    read_feature_map as read_feature_map,
    read_frequencies as read_frequencies,
    read_guarantee as read_guarantee,
    read_problem as read_problem,
    to_dict as to_dict,
)

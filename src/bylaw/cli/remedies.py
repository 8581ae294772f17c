"""The remedies of errors and warnings, in the words of the command line: flags and keys of the rules file."""

from __future__ import annotations

from bylaw.errors import Action, BylawError, ConvergenceWarning, GuaranteeWarning, Remedy

_IN_SHELL: dict[Action, str] = {
    "pass_labels": "name their column with --label COLUMN",
    "pass_groups": "name its column with --group {subject}=COLUMN",
    "pass_group_probabilities": "name the columns of its probabilities with "
    "--group-probabilities '{subject}=PATTERN', such as '{subject}_*'",
    "pass_true_groups": "name the column of its observed values with --true-group {subject}=COLUMN",
    "pass_combinations": "name the column of one of them with --group NAME=COLUMN; only the Python library "
    "takes probabilities of combinations",
    "pass_joint": "name its columns in the rules file of the fit with joint = {{ {subject} = "
    '"{subject}_*_label_*" }} under [columns], or give its values with --group {subject}=COLUMN',
    "drop_copies": "give each row once",
    "pass_largest_weight": "state it with --largest-weight NUMBER",
    "pass_limits": "state its range with --limit {subject}=LEAST:MOST",
    "pass_outcomes": "name the columns of what it turned out to be with --outcomes '{subject}=PATTERN', or "
    "pass --outcomes {subject}=known if it does not depend on what turns out",
    "pass_reference": "name the column of its labels with --reference {subject}=COLUMN",
    "pass_costs": 'name its columns in the rules file with costs = {{ {subject} = "{subject}_*" }} '
    "under [columns]",
    "pass_changes": "give the policy that decided before with --previous POLICY",
    "pass_decisions": "name the column of the decisions that were taken with --decisions COLUMN, or use "
    "--method betting",
    "choose_method": "use --method {subject}",
    "choose_solver": 'otherwise set solver = "{subject}" under [solve] in the rules file',
    "choose_decisions": 'for other decisions set decisions = "{subject}" at the top of the rules file',
    "choose_reject": 'choose another with reject = "refer" at the top of the rules file',
    "choose_probabilities": "name them with --scores 'p_*' or --scores COLUMN,COLUMN; or one, with --scores "
    "COLUMN --positive CLASS",
    "choose_scores": "name it with --scores COLUMN",
    "choose_positive": "name it with --positive CLASS",
    "name_classes": "name both with --classes OTHER,{subject}, or the column of true labels with --label",
    "choose_group": "pass --group {subject} or --group-probabilities '{subject}={subject}_*'",
    "choose_column": "pass {flag} {choices[0]}, for instance",
    "list_columns": "name the columns one by one, in the order of the classes, with --scores COLUMN,COLUMN",
    "state_delimiter": "pass --delimiter ';'",
    "normalize": "correct it, or pass --normalize to divide each row by its sum",
    "align_rows": "give both as columns of one table",
    "read_all_rows": "pass --in-memory, with a part of the rows if they are too many",
    "estimate_fitted_rows": "give rows that were held out; `bylaw audit --fitted-rows estimate` gives an "
    "estimate without a certificate",
    "plan_looks": "audit once, on all rows together; for looks that are planned beforehand, divide the error "
    "by their number: --confidence {subject} for {choices[0]}",
    "add_steps": "raise tol or lower beta under [solve] in the rules file",
    "loosen_tolerance": "raise tol or lower beta under [solve] in the rules file",
    "refit": "fit it again with `bylaw fit`",
}
_FLAGS = {"label": "--label", "weight": "--weight", "id": "--id-column"}


def word_for_shell(remedy: Remedy) -> str:
    """A remedy in the words of somebody who calls the command line."""
    flag = _FLAGS.get(remedy.subject, "")
    return _IN_SHELL[remedy.action].format(subject=remedy.subject, choices=remedy.choices, flag=flag)


def describe_problem(problem: BaseException) -> str:
    """An error or a warning with its remedy and its notes."""
    advised = isinstance(problem, BylawError | ConvergenceWarning | GuaranteeWarning)
    text = problem.describe(word_for_shell) if advised else str(problem)
    return "\n".join([text, *getattr(problem, "__notes__", ())])

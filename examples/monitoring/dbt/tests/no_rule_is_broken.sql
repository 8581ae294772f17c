-- A test fails if it finds lines, and here a line is an alarm.
select rule, status, since, estimate, target
from {{ ref("rule_status") }}
where status in ('broken', 'changed')

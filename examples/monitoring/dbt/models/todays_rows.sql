-- The rows of one day. Their order must have nothing to do with their content.
select '{{ var("day") }}' as day, id, p_bad, p_good, sex
from read_parquet('{{ var("folder") }}/rows/{{ var("day") }}.parquet')
order by hash(id)

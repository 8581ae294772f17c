from bylaw.scoring._text import write_sum, join_lines

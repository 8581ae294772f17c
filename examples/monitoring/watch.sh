#!/usr/bin/env bash
# Watch the rows of one day, and the labels that arrived on it:  watch.sh FOLDER [DAY], by default yesterday.
#
# FOLDER has policy.json, watched.toml, rows/DAY.parquet and perhaps labels/DAY.parquet;
# watch.json and log/DAY.txt are written there.
# Exit codes: 0 quiet, 1 alarm, 2 or 3 error, 75 another run is active.
# NOTIFY is a command that reads a message, such as NOTIFY='mail -s bylaw team@example.org'.
# ID and LABEL name columns; RUN_LENGTH is how many rows pass between false alarms, on average at least.
set -u
id=${ID:-id} label=${LABEL:-y} run_length=${RUN_LENGTH:-219000} # a year of 600 rows a day
day=${2:-$(date -u -d yesterday +%F)}
cd "${1:?the folder with policy.json}" || exit 2
mkdir -p log

exec 9> watch.lock
flock --nonblock 9 || { echo "another run is at work" >&2; exit 75; }

settings=() # of a new state
[ -e watch.json ] || settings=(--rules watched.toml --run-length "$run_length")

: > "log/$day.txt"
bylaw watch policy.json "rows/$day.parquet" --state watch.json --batch "$day" --id-column "$id" \
    "${settings[@]}" >> "log/$day.txt" 2>&1
code=$?
if [ $code -le 1 ] && [ -e "labels/$day.parquet" ]; then
    bylaw watch policy.json "labels/$day.parquet" --state watch.json --batch "labels $day" --late \
        --id-column "$id" --label "$label" >> "log/$day.txt" 2>&1
    code=$?
fi

[ $code -eq 0 ] || ${NOTIFY:-cat} < "log/$day.txt"
exit $code

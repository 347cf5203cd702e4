#!/usr/bin/env bash
# All tables, the evaluator's checks, the contact sheets and docs/results.md. Stop it at any time: it goes on where it was.
#
#   benchmarks/tables.sh DATA [laptop|full] [MODEL]
#
# laptop (default): fixed small subsets, one K a clip; about 20 minutes of one core. full: all clips, 10 repeats; a GPU.
set -euo pipefail

data=${1:?usage: benchmarks/tables.sh DATA [laptop|full] [MODEL]}
size=${2:-laptop}
model=${3:-open}

case $size in
  laptop)
    common=(--mixed --samples 64 --heavy-samples 5 --batch 16)
    prior=(--prompts 4)
    few=(--mixed --samples 5 --heavy-samples 5)
    timing=(--samples 4 --heavy-samples 2 --batch 4)
    six=(--samples 4 --heavy-samples 2 --batch 4)
    checked=(--samples 64) ;;
  full)
    common=(--repeats 10 --heavy-samples 1000000)
    prior=(--repeats 10 --prompts 100)
    few=("${common[@]}")
    timing=(--samples 64 --heavy-samples 64 --batch 64)
    six=("${common[@]}")
    checked=(--samples 1000000) ;;
  *) echo "size $size is unknown: laptop or full" >&2; exit 2 ;;
esac

table() { anchorroute evaluate "$1" --data "$data" --model "$model" "${@:2}"; }

table prior "${prior[@]}"
table families "${common[@]}"
table refinement "${common[@]}"
table mechanism "${few[@]}"
table baselines "${common[@]}"
table keyjoint "${six[@]}"
table runtime "${timing[@]}"
table evaluator "${checked[@]}"
table gallery
anchorroute evaluate report

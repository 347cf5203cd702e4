#!/usr/bin/env bash
# Everything that ships, from the public sources to the tables: data, tokenizer, prior, finer levels, three adapters,
# evaluator, tables. Every run continues where it stopped when the script is started again.
#
#   benchmarks/reproduce.sh SOURCE [PRESET] [OUT]
#
# SOURCE is the folder of BVH takes with its index, PRESET one of open (default), paper, debug. A run's length is its
# preset's own; MINUTES_TOKENIZER, _PRIOR, _RESIDUAL, _CONTROL and DEVICES change it.
set -euo pipefail

source=${1:?usage: benchmarks/reproduce.sh SOURCE [PRESET] [OUT]}
preset=${2:-open}
out=${3:-runs/$preset}
devices=${DEVICES:-1}

budget() { [[ -n "${1:-}" ]] && echo "--minutes $1" || true; }
train() { anchorroute train "${@:1:$#-1}" --preset "$preset" --devices "$devices" "$data" "${@: -1}"; }

data=$out/data
[[ -f $data/build.json ]] || anchorroute data build "$source" "$data" --extra all

# What is built on what: the tokenizer, the two token networks on it, the adapters on all three.
# shellcheck disable=SC2046
{
  train tokenizer $(budget "${MINUTES_TOKENIZER:-}") "$out/tokenizer"
  tokens=(--tokenizer "$out/tokenizer/tokenizer")
  train prior "${tokens[@]}" $(budget "${MINUTES_PRIOR:-}") "$out/prior"
  networks=("${tokens[@]}" --prior "$out/prior/prior")
  # The open preset ships the first level alone: on one CPU core the finer levels' network learned too little to help.
  if [[ $preset != open ]]; then
    train residual "${tokens[@]}" $(budget "${MINUTES_RESIDUAL:-}") "$out/residual"
    networks+=(--residual "$out/residual/residual")
  fi
  for family in root3d planar body; do
    train control --family "$family" "${networks[@]}" $(budget "${MINUTES_CONTROL:-}") "$out/control-$family"
  done
}

train evaluator "$out/evaluator"

# One folder that `anchorroute generate --model` and the tables read.
adapters=()
for family in root3d planar body; do
  adapters+=(--control "$out/control-$family/control-$family")
done
anchorroute train assemble "${networks[@]}" "${adapters[@]}" "$data" "$out/model"

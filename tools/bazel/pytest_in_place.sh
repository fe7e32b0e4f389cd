#!/bin/bash
# Runs pytest in the source tree, for `bazel test` without a sandbox.
set -euo pipefail
cd "$(dirname "$(readlink -f pyproject.toml)")"
export PYTHONPATH=$PWD
exec build/venv/bin/python -m pytest --quiet -p no:cacheprovider --basetemp="$TEST_TMPDIR/pytest" --junitxml="$XML_OUTPUT_FILE" "$@"

#!/bin/bash
# Runs pytest on folders of this workspace, for `bazel test`.
set -euo pipefail
venv=$(dirname "$(readlink -f ../venv/pyvenv.cfg)")
export HOME=$TEST_TMPDIR PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" -m pytest --quiet -p no:cacheprovider --basetemp="$TEST_TMPDIR/pytest" --junitxml="$XML_OUTPUT_FILE" "$@"

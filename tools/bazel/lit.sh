#!/bin/bash
# Runs lit on folders of lit_tests, for `bazel test`.
set -euo pipefail
venv=$(dirname "$(readlink -f ../venv/pyvenv.cfg)")
tools=$(dirname "$(readlink -f ../patched_tools/bin/clang)")
export HOME=$TEST_TMPDIR PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/lit" --verbose --order=smart --workers=1 --param tools="$tools" --param work="$TEST_TMPDIR/lit" "$@"

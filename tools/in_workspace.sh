#!/bin/sh
# Runs a command in the source tree on behalf of `bazel run`.
cd "${BUILD_WORKSPACE_DIRECTORY:?this is for bazel run}" && exec "$@"

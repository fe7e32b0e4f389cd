"""The rules for Java that Bazel has built in, and loads for its own toolchains."""

def java_import(**attributes):
    native.java_import(**attributes)

def java_runtime(**attributes):
    native.java_runtime(**attributes)

def java_toolchain(**attributes):
    native.java_toolchain(**attributes)

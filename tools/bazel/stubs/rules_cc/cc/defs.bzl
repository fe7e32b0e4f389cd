"""The rules for C++ that Bazel has built in."""

def cc_binary(**attributes):
    native.cc_binary(**attributes)

def cc_library(**attributes):
    native.cc_library(**attributes)

def cc_toolchain(**attributes):
    native.cc_toolchain(**attributes)

def cc_toolchain_suite(**attributes):
    native.cc_toolchain_suite(**attributes)

def cc_test(**attributes):
    native.cc_test(**attributes)

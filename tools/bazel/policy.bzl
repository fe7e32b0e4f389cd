"""The patched tools as a C++ toolchain whose policy and profile are inputs of each compilation."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:cc_toolchain_config_lib.bzl", "feature", "flag_group", "flag_set", "tool_path")
load("@rules_cc//cc:defs.bzl", "cc_toolchain")

# Options of clang by problem: the mode, and the policy's folder (`Problem` in policy/problem.py).
MODE_AND_MODEL = {
    "inline-size": ("-enable-ml-inliner", "-ml-inliner-model-under-training"),
    "regalloc-evict": ("-regalloc-enable-advisor", "-regalloc-model"),
}

_COMPILE = [ACTION_NAMES.c_compile, ACTION_NAMES.cpp_compile]
_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _folder(files, name):
    """The folder of the file of that name."""
    for file in files:
        if file.basename == name:
            return file.dirname
    fail("the policy has no " + name)

def _flags(name, actions, flags):
    return feature(
        name = name,
        enabled = True,
        flag_sets = [flag_set(actions = actions, flag_groups = [flag_group(flags = flags)])],
    )

def _config_impl(ctx):
    options = []
    if ctx.files.model:
        mode, model = MODE_AND_MODEL[ctx.attr.problem]
        options += [mode + "=development", model + "=" + _folder(ctx.files.model, "model.tflite")]
        options.append("-litert-library=" + ctx.file.litert.path)
    for file in ctx.files.profile:
        if file.basename.endswith(".pmu.json"):
            options.append("-pmu-profile=" + file.path)

    # Headers of clang's own are inputs, beside the program as it is called.
    compile = ["-no-canonical-prefixes", "-Wno-builtin-macro-redefined"]
    for option in options:
        compile += ["-mllvm", option]

    # Relative to the package.
    tools = {name: "bin/clang" for name in ("gcc", "cpp", "ld")}
    tools.update({name: "/usr/bin/" + name for name in ("ar", "gcov", "nm", "objdump", "strip")})
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "unknown",
        abi_version = "unknown",
        compiler = "clang",
        cxx_builtin_include_directories = ["/usr/include", "/usr/lib/gcc", "%workspace%/" + ctx.label.workspace_root + "/lib/clang"],
        features = [
            _flags("policy", _COMPILE, compile),
            _flags("libraries", _LINK, ["-no-canonical-prefixes", "-fuse-ld=lld", "-lstdc++", "-lm"]),
        ],
        host_system_name = "x86_64-linux-gnu",
        target_cpu = "k8",
        target_libc = "glibc",
        target_system_name = "x86_64-linux-gnu",
        tool_paths = [tool_path(name = name, path = path) for name, path in tools.items()],
        toolchain_identifier = ctx.label.name,
    )

_config = rule(
    attrs = {
        "litert": attr.label(allow_single_file = True, mandatory = True),
        "model": attr.label_list(allow_files = True),
        "problem": attr.string(),
        "profile": attr.label_list(allow_files = True),
    },
    implementation = _config_impl,
    provides = [CcToolchainConfigInfo],
)

def policy_toolchain(name, problem = "", model = [], profile = []):
    """A toolchain for --extra_toolchains, in the package of the folder of patched tools.

    Args:
      name: of the toolchain.
      problem: what the policy decides, a key of MODE_AND_MODEL; empty for none.
      model: the files of the policy's folder.
      profile: a PMU profile: NAME.pmu.json and the files that it names.
    """
    litert = "@venv//:litert"
    _config(
        name = name + "_config",
        litert = litert,
        model = model,
        problem = problem,
        profile = profile,
    )
    native.filegroup(
        name = name + "_inputs",
        srcs = [":bin", ":headers", litert] + model + profile,
    )
    inputs = ":" + name + "_inputs"
    cc_toolchain(
        name = name + "_cc",
        all_files = inputs,
        ar_files = inputs,
        as_files = inputs,
        compiler_files = inputs,
        dwp_files = inputs,
        linker_files = inputs,
        objcopy_files = inputs,
        strip_files = inputs,
        toolchain_config = ":" + name + "_config",
    )
    native.toolchain(
        name = name,
        exec_compatible_with = ["@platforms//cpu:x86_64", "@platforms//os:linux"],
        target_compatible_with = ["@platforms//cpu:x86_64", "@platforms//os:linux"],
        toolchain = ":" + name + "_cc",
        toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
    )

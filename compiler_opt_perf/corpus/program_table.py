# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of programs: sources, flags and generated headers of each, one row a program.

corpus.programs builds them. The module is long because it is data.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """How to build and run one program.

    Attributes:
      name: the program's name; also the binary's file name.
      source_package: name of Debian's source package.
      sources: globs relative to the source tree.
      excluded: globs of unneeded files among these.
      flags: preprocessor and language flags; relative include folders refer to the source tree.
      libraries: link flags.
      generated: (name, text) of headers that the package's own build system would write.
      templates: (name, template) of headers that it would expand from the source tree.
      values: (variable, value) of the templates; other variables are undefined, or 0.
      workload_inputs: globs relative to the source tree; the files make up the input of runs.
      is_library: whether the sources have no `main`.
    """

    name: str
    source_package: str
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    generated: tuple[tuple[str, str], ...] = ()
    templates: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    workload_inputs: tuple[str, ...] = ()
    is_library: bool = False


# HAVE_ macros of glog's config.h on Linux.
_GLOG_HAS = (
    *("DLADDR", "SNPRINTF", "DLFCN_H", "EXECINFO_H", "FCNTL", "GLOB_H", "INTTYPES_H", "MEMORY_H"),
    *("LIBPTHREAD", "NAMESPACES", "PREAD", "PTHREAD", "PWD_H", "PWRITE", "RWLOCK", "SIGACTION"),
    *("SIGALTSTACK", "STDINT_H", "STRINGS_H", "SYSCALL_H", "SYSLOG_H", "SYS_STAT_H", "UNISTD_H"),
    *("SYS_SYSCALL_H", "SYS_TIME_H", "SYS_TYPES_H", "SYS_UCONTEXT_H", "SYS_UTSNAME_H", "UNWIND_H"),
    *("SYS_WAIT_H", "UCONTEXT_H", "_UNWIND_BACKTRACE", "USING_OPERATOR", "__ATTRIBUTE__"),
    *("__BUILTIN_EXPECT", "__SYNC_VAL_COMPARE_AND_SWAP", "SYMBOLIZE", "LOCALTIME_R", "GMTIME_R"),
    *("ALIGNED_STORAGE", "CXX11_ATOMIC", "CXX11_CHRONO", "CXX11_NULLPTR_T"),
)
_GLOG_EMPTY = ("EXPORT", "NO_EXPORT", "DEPRECATED")
# HAVE_ macros of LLVM's config.h on Linux.
_LLVM_HAS = (
    *("UNISTD_H", "SYS_MMAN_H", "SYS_RESOURCE_H", "SYS_TIME_H", "SYS_STAT_H", "SYS_TYPES_H"),
    *("DLFCN_H", "FCNTL_H", "SIGNAL_H", "SYSEXITS_H", "TERMIOS_H", "SYS_IOCTL_H", "SYS_PARAM_H"),
    *("PTHREAD_H", "LINK_H", "DLOPEN", "DLADDR", "GETRUSAGE", "GETPAGESIZE", "SIGALTSTACK"),
    *("STRERROR_R", "SYSCONF", "MALLINFO2", "POSIX_SPAWN", "PREAD", "SETENV", "ISATTY", "FUTIMENS"),
    *("PTHREAD_GETNAME_NP", "PTHREAD_SETNAME_NP", "PTHREAD_GETSPECIFIC", "BACKTRACE"),
    *("UNWIND_BACKTRACE", "STRUCT_STAT_ST_MTIM_TV_NSEC", "MALLOC_H", "EXECINFO_H"),
)
_TAGLIB_FOLDERS = (
    *("toolkit", "asf", "mpeg", "ogg", "ogg/flac", "flac", "mpc", "mp4", "ogg/vorbis", "ogg/speex"),
    *("ogg/opus", "mpeg/id3v2", "mpeg/id3v2/frames", "mpeg/id3v1", "ape", "wavpack", "trueaudio"),
    *("riff", "riff/aiff", "riff/wav", "mod", "s3m", "it", "xm"),
)
_SEVEN_ZIP_FOLDERS = (
    *("Archive", "Archive/7z", "Archive/Cab", "Archive/Chm", "Archive/Common", "Archive/Iso"),
    *("Archive/Nsis", "Archive/Tar", "Archive/Udf", "Archive/Wim", "Archive/Zip", "Common"),
    *("Compress", "Crypto", "UI/Common", "UI/Console"),
)
_MAFFT_PARTS = (
    *("mtxutl", "io", "mltaln9", "tddis", "constants", "partSalignmm", "Lalignmm", "rna"),
    *("Salignmm", "Dalignmm", "Falign", "MSalignmm", "Galign11", "Lalign11", "genalign11"),
    *("MSalign11", "suboptalign11", "SAalignmm", "pairlocalalignmain", "pairlocalalign", "defs"),
    *("fft", "fftFunctions"),
)

# LLVM's libraries, one row each. Their style is the same: a split should not separate them.
_LLVM_LIBRARIES = (
    *(("llvm-support", "Support"), ("llvm-analysis", "Analysis"), ("llvm-object", "Object")),
    *(("llvm-mc", "MC"), ("llvm-utils", "Transforms/Utils")),
)


def _llvm(name: str, folder: str) -> Program:
    """Returns the row of one of LLVM's libraries."""
    return Program(
        name=name,
        source_package="llvm-toolchain-22",
        sources=(f"llvm/lib/{folder}/*.cpp",),
        flags=(
            "-std=c++17",
            "-fno-exceptions",
            "-fno-rtti",
            "-DNDEBUG",
            "-D_GNU_SOURCE",
            "-D__STDC_CONSTANT_MACROS",
            "-D__STDC_FORMAT_MACROS",
            "-D__STDC_LIMIT_MACROS",
            "-I/usr/lib/llvm-22/include",
        ),
        is_library=True,
        generated=(
            (
                "llvm/Config/config.h",
                '#include "llvm/Config/llvm-config.h"\n'
                '#define PACKAGE_NAME "LLVM"\n'
                '#define PACKAGE_STRING "LLVM"\n'
                '#define PACKAGE_VERSION "22"\n'
                '#define BUG_REPORT_URL ""\n'
                '#define LTDL_SHLIB_EXT ".so"\n'
                "#define LLVM_WINDOWS_PREFER_FORWARD_SLASH 0\n"
                "#define LLVM_ENABLE_CRASH_DUMPS 0\n"
                "#define BACKTRACE_HEADER <execinfo.h>\n"
                + "".join(f"#define HAVE_{name} 1\n" for name in _LLVM_HAS),
            ),
        ),
    )


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        Program(
            name="zstd",
            source_package="libzstd",
            sources=(
                "lib/common/*.c",
                "lib/compress/*.c",
                "lib/decompress/*.c",
                "lib/dictBuilder/*.c",
                "programs/*.c",
            ),
            flags=(
                "-DZSTD_DISABLE_ASM",
                "-DZSTD_MULTITHREAD",
                "-DXXH_NAMESPACE=ZSTD_",
                "-DDEBUGLEVEL=0",
                "-Ilib",
                "-Ilib/common",
                "-Ilib/dictBuilder",
            ),
            libraries=("-lpthread",),
            workload_inputs=("lib/*/*.[ch]", "programs/*.[ch]"),
        ),
        Program(
            name="lua",
            source_package="lua5.4",
            sources=("src/*.c",),
            excluded=("src/luac.c",),
            flags=("-DLUA_USE_LINUX", "-DLUA_COMPAT_5_3", "-Isrc"),
            libraries=("-lm", "-ldl"),
            generated=(
                ("lua5.4-deb-multiarch.h", '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n'),
            ),
        ),
        Program(
            name="bzip2",
            source_package="bzip2",
            sources=("*.c",),
            # Tests and tools with their own main.
            excluded=("bzip2recover.c", "dlltest.c", "mk251.c", "spewG.c", "unzcrash.c"),
            flags=("-D_FILE_OFFSET_BITS=64",),
            workload_inputs=("*.[ch]", "manual.*"),
        ),
        Program(
            name="cmark",
            source_package="cmark",
            sources=("src/*.c",),
            flags=("-DCMARK_STATIC_DEFINE", "-Isrc"),
            generated=(
                (
                    "config.h",
                    "#include <stdbool.h>\n"
                    "#define HAVE___BUILTIN_EXPECT\n"
                    "#define CMARK_ATTRIBUTE(list) __attribute__(list)\n"
                    "#define CMARK_INLINE inline\n",
                ),
                ("cmark_export.h", "#define CMARK_EXPORT\n"),
                (
                    "cmark_version.h",
                    '#define CMARK_VERSION 0\n#define CMARK_VERSION_STRING "Debian"\n',
                ),
            ),
            workload_inputs=("*.md", "test/*.txt"),
        ),
        Program(
            name="jansson",
            source_package="jansson",
            sources=("src/*.c", "test/bin/json_process.c"),
            flags=("-DHAVE_CONFIG_H", "-DHAVE_STDINT_H", "-Isrc"),
            generated=(
                ("jansson_private_config.h", "#define INITIAL_HASHTABLE_ORDER 3\n"),
                (
                    "jansson_config.h",
                    "#define JSON_INLINE inline\n"
                    "#define JSON_INTEGER_IS_LONG_LONG 1\n"
                    "#define JSON_HAVE_LOCALECONV 1\n"
                    "#define JSON_HAVE_ATOMIC_BUILTINS 1\n"
                    "#define JSON_HAVE_SYNC_BUILTINS 1\n"
                    "#define JSON_PARSER_MAX_DEPTH 2048\n",
                ),
            ),
        ),
        Program(
            name="libgsm",
            source_package="libgsm",
            sources=("src/*.c",),
            flags=("-DSASR", "-DNeedFunctionPrototypes=1", "-Iinc"),
            libraries=("-lm",),
        ),
        Program(
            name="libyaml",
            source_package="libyaml",
            sources=("src/*.c", "tests/run-parser.c"),
            flags=(
                "-DYAML_VERSION_MAJOR=0",
                "-DYAML_VERSION_MINOR=2",
                "-DYAML_VERSION_PATCH=5",
                '-DYAML_VERSION_STRING="0.2.5"',
                "-Iinclude",
            ),
        ),
        Program(
            name="lz4",
            source_package="lz4",
            sources=("lib/*.c", "programs/*.c"),
            flags=("-DXXH_NAMESPACE=LZ4_", "-Ilib"),
            workload_inputs=("lib/*.[ch]", "programs/*.[ch]", "tests/*.[ch]"),
        ),
        Program(
            name="minisat",
            source_package="minisat2",
            sources=("minisat/simp/*.cc", "minisat/core/Solver.cc", "minisat/utils/*.cc"),
            flags=("-std=c++98", "-D__STDC_LIMIT_MACROS", "-D__STDC_FORMAT_MACROS", "-I."),
            libraries=("-lstdc++", "-lm", "-lz"),
        ),
        Program(
            name="mujs",
            source_package="mujs",
            sources=("*.c",),
            excluded=("one.c", "pp.c"),
            flags=("-std=c99",),
            libraries=("-lm",),
        ),
        Program(
            name="tcc",
            source_package="tcc",
            sources=("tcc.c", "libtcc.c", "tcc[aegpr]*.c", "i386-asm.c", "x86_64-*.c"),
            excluded=("tccpe.c",),
            flags=("-DONE_SOURCE=0", "-DTCC_TARGET_X86_64", "-I."),
            libraries=("-lm", "-ldl", "-lpthread"),
            generated=(
                ("config.h", '#define TCC_VERSION "Debian"\n#define CONFIG_TCC_STATIC 0\n'),
            ),
        ),
        Program(
            name="zlib",
            source_package="zlib",
            sources=("*.c", "test/minigzip.c"),
            flags=("-DHAVE_UNISTD_H", "-D_LARGEFILE64_SOURCE=1", "-I."),
            workload_inputs=("*.[ch]", "*/*.[ch]"),
        ),
        Program(
            name="lmdb",
            source_package="lmdb",
            sources=(
                "libraries/liblmdb/mdb.c",
                "libraries/liblmdb/midl.c",
                "libraries/liblmdb/mdb_load.c",
            ),
            libraries=("-lpthread",),
        ),
        # The amalgamation with its benchmark (corpus.programs.program_tree).
        Program(
            name="sqlite",
            source_package="sqlite3",
            sources=("*.c",),
            flags=("-DSQLITE_THREADSAFE=0", "-I."),
            libraries=("-lm", "-ldl"),
        ),
        # Libraries and programs in C++.
        Program(
            name="ninja",
            source_package="ninja-build",
            sources=("src/*.cc",),
            excluded=(
                "src/browse.cc",
                "src/depfile_parser.in.cc",
                "src/hash_collision_bench.cc",
                "src/includes_normalize-win32.cc",
                "src/lexer.in.cc",
                "src/minidump-win32.cc",
                "src/msvc_helper-win32.cc",
                "src/msvc_helper_main-win32.cc",
                "src/subprocess-win32.cc",
                "src/*test.cc",
            ),
            flags=("-std=c++11", "-fno-rtti", "-fno-exceptions"),
            libraries=("-lstdc++", "-lpthread"),
        ),
        Program(
            name="jsoncpp",
            source_package="libjsoncpp",
            sources=("src/lib_json/*.cpp", "src/jsontestrunner/main.cpp"),
            flags=("-std=c++11", "-Iinclude"),
            libraries=("-lstdc++", "-lm"),
        ),
        Program(
            name="yaml-cpp",
            source_package="yaml-cpp",
            sources=("src/*.cpp", "src/contrib/*.cpp", "util/parse.cpp"),
            flags=("-std=c++11", "-DYAML_CPP_STATIC_DEFINE", "-Iinclude"),
            libraries=("-lstdc++", "-lm"),
        ),
        Program(
            name="box2d",
            source_package="box2d",
            sources=("src/*/*.cpp",),
            flags=("-std=c++11", "-Iinclude", "-Isrc"),
            is_library=True,
        ),
        Program(
            name="tinyxml",
            source_package="tinyxml",
            sources=("*.cpp",),
            flags=("-DTIXML_USE_STL",),
            libraries=("-lstdc++",),
        ),
        Program(
            name="glog",
            source_package="google-glog",
            sources=("src/*.cc",),
            excluded=("src/*test*.cc",),
            flags=("-std=c++11", *(f"-DGLOG_{x}=" for x in _GLOG_EMPTY), "-Isrc"),
            is_library=True,
            templates=(
                ("config.h", "src/config.h.cmake.in"),
                ("glog/logging.h", "src/glog/logging.h.in"),
                ("glog/raw_logging.h", "src/glog/raw_logging.h.in"),
                ("glog/stl_logging.h", "src/glog/stl_logging.h.in"),
                ("glog/vlog_is_on.h", "src/glog/vlog_is_on.h.in"),
            ),
            values=(
                *((f"HAVE_{name}", "1") for name in _GLOG_HAS),
                *((f"ac_cv_have_{name}", "1") for name in ("unistd_h", "stdint_h", "systypes_h")),
                ("ac_cv_have_inttypes_h", "1"),
                ("ac_cv_have_uint16_t", "1"),
                ("ac_cv_have___builtin_expect", "1"),
                ("ac_cv_cxx_using_operator", "1"),
                ("ac_google_namespace", "google"),
                ("ac_google_start_namespace", "namespace google {"),
                ("ac_google_end_namespace", "}"),
                ("ac_cv___attribute___noreturn", "__attribute__((noreturn))"),
                ("ac_cv___attribute___noinline", "__attribute__((noinline))"),
                ("ac_cv___attribute___printf_4_5", "__attribute__((format(printf, 4, 5)))"),
                ("GOOGLE_NAMESPACE", "google"),
                ("_START_GOOGLE_NAMESPACE_", "namespace google {"),
                ("_END_GOOGLE_NAMESPACE_", "}"),
                ("GLOG_THREAD_LOCAL_STORAGE", "__thread"),
                ("SIZEOF_VOID_P", "8"),
                ("STL_NAMESPACE", "std"),
            ),
        ),
        Program(
            name="gflags",
            source_package="gflags",
            sources=("src/gflags*.cc",),
            flags=("-std=c++11", "-DGFLAGS_IS_A_DLL=0", "-Isrc"),
            is_library=True,
            templates=(
                ("defines.h", "src/defines.h.in"),
                ("gflags/gflags.h", "src/gflags.h.in"),
                ("gflags/gflags_completions.h", "src/gflags_completions.h.in"),
                ("gflags/gflags_declare.h", "src/gflags_declare.h.in"),
            ),
            values=(
                ("GFLAGS_NAMESPACE", "google"),
                ("GFLAGS_ATTRIBUTE_UNUSED", "__attribute__((unused))"),
                ("INCLUDE_GFLAGS_NS_H", ""),
                ("GFLAGS_INTTYPES_FORMAT_C99", "1"),
                *((f"HAVE_{name}", "1") for name in ("STDINT_H", "SYS_TYPES_H", "INTTYPES_H")),
                *((f"HAVE_{name}", "1") for name in ("SYS_STAT_H", "UNISTD_H", "FNMATCH_H")),
                *((f"HAVE_{name}", "1") for name in ("STRTOLL", "PTHREAD", "RWLOCK")),
            ),
        ),
        Program(
            name="capnproto",
            source_package="capnproto",
            sources=(
                "src/kj/*.c++",
                "src/kj/parse/*.c++",
                "src/kj/compat/url.c++",
                "src/capnp/*.c++",
                "src/capnp/compat/json*.c++",
                "src/capnp/compiler/*.c++",
            ),
            excluded=("*-test.c++", "*testcase.c++", "*test-util.c++", "*/test.c++", "*capnpc-*"),
            flags=("-std=c++14", "-Isrc", '-DCAPNP_INCLUDE_DIR="/usr/include"'),
            libraries=("-lstdc++", "-lpthread"),
        ),
        Program(
            name="cppunit",
            source_package="cppunit",
            sources=("src/cppunit/*.cpp",),
            excluded=("*/DllMain.cpp", "*/Win32*.cpp", "*/Shl*.cpp"),
            flags=("-std=c++11", "-Iinclude"),
            is_library=True,
            generated=(
                (
                    "cppunit/config-auto.h",
                    "#define CPPUNIT_HAVE_CMATH 1\n"
                    "#define CPPUNIT_HAVE_CXXABI_H 1\n"
                    "#define CPPUNIT_HAVE_DLFCN_H 1\n"
                    "#define CPPUNIT_HAVE_GCC_ABI_DEMANGLE 1\n"
                    "#define CPPUNIT_HAVE_ISFINITE 1\n"
                    "#define CPPUNIT_HAVE_LIBDL 1\n"
                    "#define CPPUNIT_HAVE_NAMESPACES 1\n"
                    "#define CPPUNIT_HAVE_RTTI 1\n"
                    "#define CPPUNIT_HAVE_SSTREAM 1\n"
                    "#define CPPUNIT_HAVE_UNIX_DLL_LOADER 1\n",
                ),
            ),
        ),
        Program(
            name="taglib",
            source_package="taglib",
            sources=("taglib/*.cpp", "taglib/*/*.cpp", "taglib/*/*/*.cpp", "taglib/*/*/*/*.cpp"),
            flags=(
                "-std=c++11",
                "-DHAVE_CONFIG_H",
                "-DTAGLIB_STATIC",
                "-I3rdparty",
                "-Itaglib",
                *(f"-Itaglib/{folder}" for folder in _TAGLIB_FOLDERS),
            ),
            is_library=True,
            generated=(
                (
                    "config.h",
                    "#define HAVE_GCC_BYTESWAP 1\n"
                    "#define HAVE_GCC_ATOMIC 1\n"
                    "#define HAVE_VSNPRINTF 1\n",
                ),
                ("utf8/checked.h", '#include "utf8-cpp/checked.h"\n'),
                ("utf8/core.h", '#include "utf8-cpp/core.h"\n'),
                ("taglib_config.h", "#define TAGLIB_WITH_ASF 1\n#define TAGLIB_WITH_MP4 1\n"),
            ),
        ),
        Program(
            name="libebml",
            source_package="libebml",
            sources=("src/*.cpp",),
            flags=("-std=c++14", "-I.", "-Isrc"),
            is_library=True,
            generated=(
                ("ebml_export.h", "#define EBML_DLL_API\n#define EBML_DLL_API_NO_EXPORT\n"),
            ),
        ),
        Program(
            name="zeromq",
            source_package="zeromq3",
            sources=("src/*.cpp",),
            flags=("-std=c++11", "-DZMQ_CUSTOM_PLATFORM_HPP", "-Iinclude", "-Isrc"),
            is_library=True,
            generated=(
                (
                    "platform.hpp",
                    "#define ZMQ_HAVE_LINUX\n"
                    "#define ZMQ_USE_CV_IMPL_STL11\n"
                    "#define ZMQ_IOTHREAD_POLLER_USE_EPOLL\n"
                    "#define ZMQ_IOTHREAD_POLLER_USE_EPOLL_CLOEXEC\n"
                    "#define ZMQ_POLL_BASED_ON_POLL\n"
                    "#define ZMQ_CACHELINE_SIZE 64\n"
                    "#define HAVE_FORK\n"
                    "#define HAVE_CLOCK_GETTIME\n"
                    "#define HAVE_MKDTEMP\n"
                    "#define ZMQ_HAVE_UIO\n"
                    "#define ZMQ_HAVE_NOEXCEPT\n"
                    "#define ZMQ_HAVE_EVENTFD\n"
                    "#define ZMQ_HAVE_EVENTFD_CLOEXEC\n"
                    "#define ZMQ_HAVE_IFADDRS\n"
                    "#define ZMQ_HAVE_SO_BINDTODEVICE\n"
                    "#define ZMQ_HAVE_SO_PEERCRED\n"
                    "#define ZMQ_HAVE_SO_KEEPALIVE\n"
                    "#define ZMQ_HAVE_O_CLOEXEC\n"
                    "#define ZMQ_HAVE_SOCK_CLOEXEC\n"
                    "#define HAVE_ACCEPT4\n"
                    "#define HAVE_STRNLEN\n"
                    "#define ZMQ_HAVE_IPC\n"
                    "#define ZMQ_USE_BUILTIN_SHA1\n"
                    "#define ZMQ_HAVE_WS\n"
                    "#define HAVE_IF_NAMETOINDEX\n",
                ),
            ),
        ),
        # Chosen after the shipped policies were finished: no training, choice of settings or test
        # had used these programs.
        Program(
            name="re2",
            source_package="re2",
            sources=("re2/*.cc", "util/rune.cc", "util/strutil.cc"),
            flags=("-std=c++11", "-I."),
            is_library=True,
        ),
        Program(
            name="leveldb",
            source_package="leveldb",
            sources=("db/*.cc", "table/*.cc", "util/*.cc"),
            excluded=("*_test.cc", "*/testutil.cc", "*_windows.cc", "db/leveldbutil.cc"),
            flags=(
                *("-std=c++11", "-fno-exceptions", "-fno-rtti", "-DLEVELDB_PLATFORM_POSIX=1"),
                *("-I.", "-Iinclude"),
            ),
            is_library=True,
            generated=(
                (
                    "port/port_config.h",
                    "#define HAVE_FDATASYNC 1\n#define HAVE_O_CLOEXEC 1\n#define HAVE_FULLFSYNC 0\n"
                    "#define HAVE_CRC32C 0\n#define HAVE_SNAPPY 0\n",
                ),
            ),
        ),
        Program(
            name="double-conversion",
            source_package="double-conversion",
            sources=("double-conversion/*.cc",),
            flags=("-std=c++11", "-I."),
            is_library=True,
        ),
        Program(
            name="exiv2",
            source_package="exiv2",
            sources=("src/*.cpp",),
            # The command-line tool, and sources that need other libraries.
            excluded=(
                *("src/exiv2.cpp", "src/actions.cpp", "src/utils.cpp", "src/getopt.cpp"),
                *("src/http.cpp", "src/ssh.cpp", "src/xmp.cpp", "src/*video.cpp"),
            ),
            flags=("-std=c++11", "-Iinclude", "-Iinclude/exiv2", "-Isrc"),
            is_library=True,
            generated=(
                (
                    "exv_conf.h",
                    "#define EXV_HAVE_STRERROR_R\n#define EXV_STRERROR_R_CHAR_P\n"
                    "#define EXV_HAVE_MMAP\n#define EXV_HAVE_MUNMAP\n#define EXV_HAVE_SYS_STAT_H\n"
                    "#define EXV_HAVE_SYS_TYPES_H\n#define EXV_HAVE_UNISTD_H\n"
                    "#define EXV_HAVE_SYS_MMAN_H\n#define EXV_HAVE_LENSDATA\n"
                    "#define EXV_ENABLE_BMFF\n"
                    '#define EXV_PACKAGE_VERSION "0.27"\n#define EXV_PACKAGE_NAME "exiv2"\n'
                    '#define EXV_PACKAGE_STRING "exiv2"\n'
                    "#define EXIV2_MAJOR_VERSION (0)\n#define EXIV2_MINOR_VERSION (27)\n"
                    "#define EXIV2_PATCH_VERSION (6)\n#define EXIV2_TWEAK_VERSION (0)\n",
                ),
                (
                    "exiv2lib_export.h",
                    "#define EXIV2API\n#define EXIV2LIB_DEPRECATED_EXPORT\n",
                ),
            ),
        ),
        # Of CTMark, beside SQLite: those that Debian has and that need no further library.
        Program(
            name="bullet",
            source_package="bullet",
            sources=(
                *("src/LinearMath/*.cpp", "src/BulletCollision/*/*.cpp"),
                *("src/BulletDynamics/*/*.cpp", "src/BulletSoftBody/*.cpp"),
            ),
            flags=("-std=c++11", "-Isrc"),
            is_library=True,
        ),
        Program(
            name="7zip",
            source_package="7zip",
            sources=(
                *("C/*.c", "CPP/Common/*.cpp", "CPP/Windows/ErrorMsg.cpp"),
                *("CPP/Windows/File[DFIN]*.cpp", "CPP/Windows/FileLink.cpp"),
                *("CPP/Windows/PropVariant*.cpp", "CPP/Windows/Sy*.cpp"),
                "CPP/Windows/TimeUtils.cpp",
                *(f"CPP/7zip/{folder}/*.cpp" for folder in _SEVEN_ZIP_FOLDERS),
            ),
            # Of other programs, for other systems, or for RAR, which Debian leaves out.
            excluded=(
                *(
                    f"C/{name}.c"
                    for name in ("7z[!BCS]*", "7zBuf", "DllSecur", "Lzma86*", "LzmaLib")
                ),
                *(f"CPP/Common/{name}.cpp" for name in ("C_FileIO", "CksumReg", "Lang", "Random")),
                *("CPP/Common/TextConfig.cpp", "CPP/*/StdAfx.cpp", "CPP/*Exports*.cpp"),
                *("CPP/7zip/Archive/AvbHandler.cpp", "CPP/7zip/Archive/LvmHandler.cpp"),
                *("CPP/7zip/*/ImplodeHuffmanDecoder.cpp", "CPP/7zip/Crypto/Rar*.cpp"),
                *("CPP/7zip/UI/Common/ArchiveName.cpp", "CPP/7zip/UI/Common/CompressCall*.cpp"),
                *("CPP/7zip/UI/Common/WorkDir.cpp", "CPP/7zip/UI/Common/ZipRegistry.cpp"),
            ),
            flags=("-D_REENTRANT", "-D_FILE_OFFSET_BITS=64", "-DNDEBUG"),
            libraries=("-lstdc++", "-lm", "-lpthread", "-ldl"),
        ),
        # CTMark's pairlocalalign.
        Program(
            name="mafft",
            source_package="mafft",
            sources=tuple(f"core/{name}.c" for name in _MAFFT_PARTS),
            flags=("-Denablemultithread", "-std=gnu89"),
            libraries=("-lm", "-lpthread"),
        ),
        *(_llvm(*library) for library in _LLVM_LIBRARIES),
    )
}

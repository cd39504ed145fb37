"""conan create packaging/conan: the C++ library, and the command with -o 'isentropic/*:cli=True'."""

import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Isentropic(ConanFile):
    name = "isentropic"
    description = "Scores to distributions: build, control, measure and use them"
    license = "MIT"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "fPIC": [True, False], "cli": [True, False]}  # noqa: RUF012
    default_options = {"shared": False, "fPIC": True, "cli": False}  # noqa: RUF012
    package_type = "library"
    implements = ["auto_shared_fpic"]  # noqa: RUF012

    def set_version(self):
        header = load(self, Path(self.recipe_folder, "../../include/isentropic/version.h"))
        numbers = re.findall(r"#define ISENTROPIC_VERSION_\w+ (\d+)", header)
        self.version = ".".join(numbers) + re.search(r'VERSION_SUFFIX "(.*)"', header)[1]

    def export_sources(self):
        root = Path(self.recipe_folder, "../..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "files/*", "cli/*"):
            copy(self, pattern, src=root, dst=self.export_sources_folder)

    def requirements(self):
        self.requires("highway/[>=1.0.3 <2]")
        self.requires("onetbb/[>=2021.8 <2023]")
        self.requires("fmt/[>=9.1 <12]")
        if self.options.cli:
            self.requires("cli11/[>=2.1 <3]")
            self.requires("simdjson/[>=3 <4]")
            self.requires("minizip/[>=1.2 <2]")
            self.requires("zlib/[>=1.2.11 <2]")
            self.requires("zstd/[>=1.5 <2]")

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        dependencies = CMakeDeps(self)
        # The names that Highway's own package has.
        dependencies.set_property("highway", "cmake_file_name", "hwy")
        dependencies.set_property("highway", "cmake_target_name", "hwy::hwy")
        dependencies.generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["ISENTROPIC_TESTS"] = False
        toolchain.cache_variables["ISENTROPIC_CLI"] = bool(self.options.cli)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", src=self.source_folder, dst=Path(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        self.cpp_info.libs = ["isentropic"]
        self.cpp_info.set_property("cmake_target_name", "isentropic::isentropic")
        if not self.options.shared:
            self.cpp_info.requires = ["highway::hwy", "onetbb::libtbb", "fmt::_fmt"]
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["m", "pthread"]

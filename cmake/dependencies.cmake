# The dependencies: hwy::hwy, TBB::tbb and fmt::fmt; for files isentropic_simdjson, isentropic_minizip, isentropic_z and
# isentropic_zstd; for the command line CLI11::CLI11. Installed ones are used. A missing one is an error that says what to
# install; or, depending on ISENTROPIC_FETCH, it is built from Debian's sources of the versions below and linked in.
set(ISENTROPIC_FETCH OFF CACHE STRING
    "Dependencies: OFF asks for installed ones, ON fetches those that are not installed, ALL fetches every one")
set_property(CACHE ISENTROPIC_FETCH PROPERTY STRINGS OFF ON ALL)
set(ISENTROPIC_ARCHIVES "" CACHE PATH "A folder with the archives that ISENTROPIC_FETCH would download: what is there is taken")
if(NOT ISENTROPIC_ARCHIVES)
  set(ISENTROPIC_ARCHIVES ${PROJECT_SOURCE_DIR}/archives)  # a source distribution has them: scripts/archives
endif()

# isentropic_missing(WHO WHAT PACKAGE): the error that says what to install.
function(isentropic_missing who what debian_package)
  message(FATAL_ERROR "${who} needs ${what}, which is not installed. On Debian or Ubuntu: sudo apt-get install ${debian_package}\n"
                      "In a clone, scripts/setup installs all that is missing; -DISENTROPIC_FETCH=ON downloads and builds it.")
endfunction()

# isentropic_fetch(NAME PATH SHA256) gets the sources, isentropic_NAME_SOURCE_DIR. Their own CMakeLists.txt is not read, because
# SOURCE_SUBDIR has none.
if(ISENTROPIC_FETCH)
  enable_language(C)
endif()
include(FetchContent)
macro(isentropic_fetch name path sha256)
  get_filename_component(isentropic_archive ${path} NAME)
  set(isentropic_url https://deb.debian.org/debian/pool/main/${path})
  if(EXISTS ${ISENTROPIC_ARCHIVES}/${isentropic_archive})
    set(isentropic_url ${ISENTROPIC_ARCHIVES}/${isentropic_archive})
  endif()
  FetchContent_Declare(isentropic_${name} URL ${isentropic_url} URL_HASH SHA256=${sha256} DOWNLOAD_EXTRACT_TIMESTAMP OFF
                       SOURCE_SUBDIR not_there)
  FetchContent_MakeAvailable(isentropic_${name})
endmacro()

function(isentropic_fetch_hwy)
  isentropic_fetch(hwy h/highway/highway_1.0.3.orig.tar.gz 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
  set(sources ${isentropic_hwy_SOURCE_DIR})
  add_library(isentropic_hwy STATIC ${sources}/hwy/aligned_allocator.cc ${sources}/hwy/per_target.cc ${sources}/hwy/print.cc
              ${sources}/hwy/targets.cc)
  target_include_directories(isentropic_hwy SYSTEM PUBLIC ${sources})
  target_compile_definitions(isentropic_hwy PUBLIC HWY_STATIC_DEFINE)
  add_library(hwy::hwy ALIAS isentropic_hwy)
endfunction()

function(isentropic_fetch_TBB)
  isentropic_fetch(tbb o/onetbb/onetbb_2021.8.0.orig.tar.xz 7e9111b8bb59c8800bf6d0b06afe7b0891937443d2dae1ee1101c8e2ede6a7ef)
  # oneTBB's own build supports every platform. In a wheel the library, the module and the command share it, under a name that
  # no other package uses, so that each process loads the right one. Elsewhere it is linked in.
  set(BUILD_SHARED_LIBS OFF)
  if(SKBUILD)
    set(BUILD_SHARED_LIBS ON)
  endif()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
  set(CMAKE_WARN_DEPRECATED OFF)
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  foreach(option TBB_TEST TBB_STRICT TBB_ENABLE_IPO TBBMALLOC_BUILD)
    set(${option} OFF)
  endforeach()
  set(TBB_DISABLE_HWLOC_AUTOMATIC_SEARCH ON)
  add_subdirectory(${isentropic_tbb_SOURCE_DIR} ${isentropic_tbb_BINARY_DIR} EXCLUDE_FROM_ALL SYSTEM)
  target_compile_options(tbb PRIVATE -w)
  if(SKBUILD)
    set_target_properties(tbb PROPERTIES OUTPUT_NAME isentropic_tbb)
  endif()
endfunction()

function(isentropic_fetch_fmt)
  isentropic_fetch(fmt f/fmtlib/fmtlib_9.1.0+ds1.orig.tar.gz 84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583)
  add_library(isentropic_fmt STATIC ${isentropic_fmt_SOURCE_DIR}/src/format.cc ${isentropic_fmt_SOURCE_DIR}/src/os.cc)
  target_include_directories(isentropic_fmt SYSTEM PUBLIC ${isentropic_fmt_SOURCE_DIR}/include)
  add_library(fmt::fmt ALIAS isentropic_fmt)
endfunction()

function(isentropic_fetch_CLI11)
  isentropic_fetch(cli11 c/cli11/cli11_2.1.2+ds.orig.tar.xz 8143d20b688e98ccce8e24562d3b68e5f47c12e896c42c7ca8553dbde5bed55d)
  add_library(isentropic_cli11 INTERFACE)
  target_include_directories(isentropic_cli11 SYSTEM INTERFACE ${isentropic_cli11_SOURCE_DIR}/include)
  add_library(CLI11::CLI11 ALIAS isentropic_cli11)
endfunction()

function(isentropic_fetch_simdjson)
  isentropic_fetch(simdjson s/simdjson/simdjson_3.0.1.orig.tar.gz 156b1bc5eb0561b2bd166b46d191fd3d95a3e709cc63761477d3b7aec2b6e9ed)
  set(sources ${isentropic_simdjson_SOURCE_DIR}/singleheader)
  add_library(isentropic_simdjson STATIC ${sources}/simdjson.cpp)
  target_include_directories(isentropic_simdjson SYSTEM PUBLIC ${sources})
endfunction()

function(isentropic_fetch_z)
  isentropic_fetch(z z/zlib/zlib_1.2.13.dfsg.orig.tar.bz2 71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1)
  set(sources ${isentropic_z_SOURCE_DIR})
  set(files adler32 compress crc32 deflate inffast inflate inftrees trees uncompr zutil)
  list(TRANSFORM files REPLACE "(.+)" "${sources}/\\1.c")
  add_library(isentropic_z STATIC ${files})
  target_include_directories(isentropic_z SYSTEM PUBLIC ${sources})
  target_compile_options(isentropic_z PRIVATE -w)
endfunction()

function(isentropic_fetch_zstd)
  isentropic_fetch(zstd libz/libzstd/libzstd_1.5.4+dfsg2.orig.tar.xz 8cf4bbb65e77ec348d052c8d6230eba66d435bddf64c8b5be2fcb16880c19953)
  set(sources ${isentropic_zstd_SOURCE_DIR}/lib)
  file(GLOB files ${sources}/common/*.c ${sources}/compress/*.c ${sources}/decompress/*.c)
  add_library(isentropic_zstd STATIC ${files})
  target_include_directories(isentropic_zstd SYSTEM PUBLIC ${sources})
  target_compile_definitions(isentropic_zstd PRIVATE ZSTD_DISABLE_ASM)  # one of its files needs an assembler
  target_compile_options(isentropic_zstd PRIVATE -w)
  # Files are written at the default level. Strategies of other levels are compiled for size, which halves them.
  set_source_files_properties(${sources}/compress/zstd_fast.c ${sources}/compress/zstd_lazy.c ${sources}/compress/zstd_opt.c
                              PROPERTIES COMPILE_OPTIONS -Os)
endfunction()

# minizip is part of zlib's sources. Its users include <minizip/unzip.h>.
function(isentropic_fetch_minizip)
  if(NOT isentropic_z_SOURCE_DIR)
    isentropic_fetch(z z/zlib/zlib_1.2.13.dfsg.orig.tar.bz2 71feb7947e3c00ef125f83b79a4e529bde31171e5babe48b391f06758d1ab0a1)
  endif()
  set(headers ${CMAKE_CURRENT_BINARY_DIR}/minizip)
  foreach(file ioapi.c ioapi.h unzip.c unzip.h zip.c zip.h crypt.h)
    configure_file(${isentropic_z_SOURCE_DIR}/contrib/minizip/${file} ${headers}/minizip/${file} COPYONLY)
  endforeach()
  add_library(isentropic_minizip STATIC ${headers}/minizip/ioapi.c ${headers}/minizip/unzip.c ${headers}/minizip/zip.c)
  target_include_directories(isentropic_minizip SYSTEM PUBLIC ${headers})
  target_compile_options(isentropic_minizip PRIVATE -w)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_compile_definitions(isentropic_minizip PRIVATE USE_FILE32API)  # no fopen64 there
  endif()
  target_link_libraries(isentropic_minizip PUBLIC isentropic_z)
endfunction()

# isentropic_find(NAME HEADER) makes the target isentropic_NAME for a shared library with its full path, so that a wheel can include
# it. minizip has no CMake package, and simdjson's checks for threads with a test that fails if flags have quotes.
function(isentropic_find name header)
  find_path(ISENTROPIC_${name}_INCLUDE ${header})
  find_library(ISENTROPIC_${name} ${name})
  if(NOT ISENTROPIC_${name} OR NOT ISENTROPIC_${name}_INCLUDE)
    return()
  endif()
  get_filename_component(file ${ISENTROPIC_${name}} REALPATH)
  get_filename_component(soname ${file} NAME)
  string(REGEX REPLACE "(\\.so\\.[0-9]+).*" "\\1" soname ${soname})
  add_library(isentropic_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(isentropic_${name} PROPERTIES IMPORTED_LOCATION ${file} IMPORTED_SONAME ${soname}
                        INTERFACE_INCLUDE_DIRECTORIES ${ISENTROPIC_${name}_INCLUDE})
endfunction()

# isentropic_depends(WHO NAME TARGET PACKAGE [HEADER]): makes TARGET available, or stops with an error. Without a header it is
# found by its CMake package.
macro(isentropic_depends who name target debian_package)
  if(NOT TARGET ${target} AND NOT ISENTROPIC_FETCH STREQUAL "ALL")
    if(${ARGC} GREATER 4)
      isentropic_find(${name} ${ARGV4})
    else()
      find_package(${name} QUIET CONFIG)
    endif()
  endif()
  if(NOT TARGET ${target})
    if(NOT ISENTROPIC_FETCH)
      isentropic_missing(${who} ${name} ${debian_package})
    endif()
    cmake_language(CALL isentropic_fetch_${name})
    set(isentropic_fetched ON)
  endif()
endmacro()

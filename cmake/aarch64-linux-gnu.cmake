# Cross-compiles for 64-bit ARM: Debian's cross compiler, and qemu to run the programs. --preset aarch64
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# The folder where scripts/arm unpacks Python, GoogleTest and LEMON.
get_filename_component(isentropic_root ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${isentropic_root} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CXX_FLAGS_INIT "-isystem ${isentropic_root}/usr/include")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${isentropic_root})
# liblemon has no CMake package that would find it there.
add_link_options(-L${isentropic_root}/usr/lib/aarch64-linux-gnu)

# C libraries that are made of Rust crates: shared, with a soname and versions, and as archives.
#
# Options: SANITIZE, a sanitizer for the tests (address); CARGO_TARGET_DIR in the environment says where Rust is built.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(CTest)

set(SANITIZE "" CACHE STRING "a sanitizer for the tests")
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
find_package(Threads REQUIRED)
set(RUST_LIBRARY_FOLDER ${CMAKE_CURRENT_LIST_DIR})
if(DEFINED ENV{CARGO_TARGET_DIR})
    set(RUST_TARGET_DIR $ENV{CARGO_TARGET_DIR})
else()
    set(RUST_TARGET_DIR ${RUST_LIBRARY_FOLDER}/../../../target)
endif()

# Makes and installs the library NAME of a crate. The project's folder has include/ with the headers, NAME.map with the versions of the
# symbols, examples/ and man/.
function(rust_library name crate description)
    # Rust makes an archive of objects; the C toolchain makes the libraries of it.
    string(REPLACE "-" "_" file ${crate})
    set(archive ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.a)
    add_custom_target(${name}_archive ALL
        COMMAND ${CARGO} rustc --release --package ${crate} --lib --crate-type staticlib
        COMMAND ${CMAKE_COMMAND} -E copy_if_different ${RUST_TARGET_DIR}/release/lib${file}.a ${archive}
        WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
        BYPRODUCTS ${archive}
        USES_TERMINAL)

    set(system_libraries Threads::Threads dl m gcc_s)
    set(map ${CMAKE_CURRENT_SOURCE_DIR}/${name}.map)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/nothing.c "")
    add_library(${name} SHARED ${CMAKE_CURRENT_BINARY_DIR}/nothing.c)
    add_dependencies(${name} ${name}_archive)
    set_target_properties(${name} PROPERTIES
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        LINK_DEPENDS "${archive};${map}")
    target_include_directories(${name} PUBLIC
        $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_options(${name} PRIVATE
        -Wl,--whole-archive ${archive} -Wl,--no-whole-archive -Wl,--gc-sections -Wl,--version-script=${map})
    target_link_libraries(${name} PRIVATE ${system_libraries})

    # The same as an archive.
    add_library(${name}_static INTERFACE)
    target_include_directories(${name}_static INTERFACE
        $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${name}_static INTERFACE
        $<BUILD_INTERFACE:${archive}> $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/lib${name}.a>
        ${system_libraries})

    install(TARGETS ${name} ${name}_static EXPORT ${name}-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT ${name}-targets NAMESPACE ${name}:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
    configure_package_config_file(${RUST_LIBRARY_FOLDER}/config.cmake.in ${name}-config.cmake
        INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
    write_basic_package_version_file(${name}-config-version.cmake COMPATIBILITY SameMinorVersion)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/${name}-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
    file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
    configure_file(${RUST_LIBRARY_FOLDER}/library.pc.in ${name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/${name}/examples FILES_MATCHING PATTERN "*.[ch]" PATTERN "*.cpp"
        PATTERN "queue" EXCLUDE)
    install(DIRECTORY man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endfunction()

# Makes a program in C11, or in C++17, that uses libraries.
function(c_program target source)
    add_executable(${target} ${source})
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -pedantic)
    target_link_libraries(${target} PRIVATE ${ARGN} Threads::Threads)
endfunction()

# Makes a program of cases, which ends with 0 if nothing was wrong, a test. It may use more of the C library than C11 has, and is
# built with the sanitizer.
function(c_test name target source)
    c_program(${target} ${source} ${ARGN})
    set_target_properties(${target} PROPERTIES C_EXTENSIONS ON)
    if(SANITIZE)
        target_compile_options(${target} PRIVATE -fsanitize=${SANITIZE} -fno-omit-frame-pointer)
        target_link_options(${target} PRIVATE -fsanitize=${SANITIZE})
    endif()
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

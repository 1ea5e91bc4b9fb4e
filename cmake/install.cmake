# install.cmake -- the components of cmake --install. programs: the programs, their man pages and the bundled model. library:
# libdrt.so.1. development: header, libdrt.a, pkg-config file, CMake package, examples. packages.cmake makes a Debian package
# of each. docs/library.md is for their users.
if(DRT_SANITIZE OR DRT_FUZZ)               # these builds have no libdrt (libdrt.cmake)
  return()
endif()
include(CMakePackageConfigHelpers)
set(drt_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/drt)
set(drt_generated ${PROJECT_BINARY_DIR}/generated)

set(drt_programs "")                       # those of tools/, without the programs with fault points
get_property(targets DIRECTORY ${PROJECT_SOURCE_DIR}/tools PROPERTY BUILDSYSTEM_TARGETS)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE AND NOT target MATCHES "-fault$")
    list(APPEND drt_programs ${target})
  endif()
endforeach()

# Man pages are made in the build, from --help of the programs and from drt.h.
set(drt_man ${drt_generated}/man)
add_custom_command(OUTPUT ${drt_man}/made VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${drt_man}/man1
  COMMAND bash ${PROJECT_SOURCE_DIR}/tools/docs/make_docs.sh ${DRT_RUN_FOLDER} ${drt_man}/cli.md ${drt_man}/man1 ${PROJECT_VERSION}
  COMMAND awk -v "version=drt ${PROJECT_VERSION}" -f ${PROJECT_SOURCE_DIR}/cmake/header_man.awk ${PROJECT_SOURCE_DIR}/include/drt.h > ${drt_man}/libdrt.3
  COMMAND ${CMAKE_COMMAND} -E touch ${drt_man}/made
  DEPENDS ${drt_programs} ${PROJECT_SOURCE_DIR}/tools/docs/make_docs.sh ${PROJECT_SOURCE_DIR}/tools/docs/help.awk
          ${PROJECT_SOURCE_DIR}/cmake/header_man.awk ${PROJECT_SOURCE_DIR}/include/drt.h)
add_custom_target(drt_man_pages ALL DEPENDS ${drt_man}/made)
add_custom_target(drt DEPENDS drt_man_pages drt_shared drt_static)   # what cmake --install installs: no tests, no benchmarks
file(MAKE_DIRECTORY ${drt_man})

install(TARGETS ${drt_programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
install(DIRECTORY ${drt_man}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT programs)
install(FILES ${drt_man}/libdrt.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/models/drt-28m DESTINATION ${CMAKE_INSTALL_DATADIR}/drt/models
  COMPONENT programs PATTERN run EXCLUDE)

install(TARGETS drt_shared EXPORT drtTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS drt_static EXPORT drtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/include/drt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT drtTargets NAMESPACE drt:: DESTINATION ${drt_cmake_folder} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/drtConfig.cmake.in ${drt_generated}/drtConfig.cmake
  INSTALL_DESTINATION ${drt_cmake_folder})
write_basic_package_version_file(${drt_generated}/drtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${drt_generated}/drtConfig.cmake ${drt_generated}/drtConfigVersion.cmake DESTINATION ${drt_cmake_folder}
  COMPONENT development)

# The file computes the prefix from its own folder, so that an installation may be moved.
file(RELATIVE_PATH drt_pc_up /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
string(REGEX REPLACE "/$" "" drt_pc_up "${drt_pc_up}")
list(TRANSFORM drt_static_needs PREPEND -l OUTPUT_VARIABLE drt_pc_private)
string(JOIN " " drt_pc_private ${drt_pc_private})
configure_file(${PROJECT_SOURCE_DIR}/cmake/drt.pc.in ${drt_generated}/drt.pc @ONLY)
install(FILES ${drt_generated}/drt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/examples/c/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libdrt-dev/examples
  COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/docs/library.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libdrt-dev COMPONENT development)
include(python)
include(packages)

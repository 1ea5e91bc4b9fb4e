# packages.cmake -- makes three Debian packages of the installed files: drt, libdrt1, libdrt-dev.
#
#   cmake --preset package && cmake --build --preset package
#
# Their dependencies are read from the files (dpkg-shlibdeps), so they are for the release of Debian of the build machine.
foreach(pair programs:drt library:libdrt${drt_abi} development:libdrt-dev)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME drt)
set(CPACK_PACKAGE_VENDOR "drt")
set(CPACK_PACKAGE_CONTACT "drt maintainers <maintainers@drt.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "chunk retrieval store and the retrieval language model that reads it")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)    # gzip takes 10 s for the model
set(CPACK_COMPONENTS_ALL programs library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
# The functions with the version that introduced each. A program depends on the newest of those that it uses.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/symbols)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "drt (= ${PROJECT_VERSION})")       # has the model
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libdrt${drt_abi} (= ${PROJECT_VERSION})")
get_property(drt_static_packages GLOBAL PROPERTY drt_static_packages)           # to link libdrt.a with
string(JOIN ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS ${drt_static_packages})
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Programs that build and search stores, generate text, train and evaluate models; the bundled model.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The shared library libdrt.so.${drt_abi}.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Header, static library, pkg-config file, CMake package and examples of libdrt.")
include(CPack)

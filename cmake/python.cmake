# python.cmake -- adds libdrt and the bundled model to the Python package, beside the sources in library/python/drt. pip builds
# the target drt_python and installs the component python (pyproject.toml); other installations do not have this component.
add_custom_target(drt_python DEPENDS drt_shared)
# Not by TARGETS: a wheel cannot contain links, so the three names of the library would be three copies.
install(PROGRAMS $<TARGET_FILE:drt_shared> DESTINATION drt RENAME libdrt.so.${drt_abi} COMPONENT python EXCLUDE_FROM_ALL)
install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-debug \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/drt/libdrt.so.${drt_abi}\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/models/drt-28m DESTINATION drt/share/drt/models
  COMPONENT python EXCLUDE_FROM_ALL PATTERN run EXCLUDE)

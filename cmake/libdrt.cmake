# libdrt.cmake -- the shared and the static library for other programs, made of the objects of the folders' libraries.
#
# Debian 12 has no package with FAISS's C interface. cmake/setup.sh uses Debian 13's archives, which a user's machine does not
# have. So FAISS is linked into libdrt.so, whose symbol versions hide it, and into libdrt.a. Debian compiles libfaiss_c.a
# for programs. In a shared library it needs a copy of libstdc++ in the library, which is hidden, too. All other libraries
# are the system's shared ones.
set(drt_abi 1)                             # of the soname; raised if a function of drt.h is changed or removed
set(drt_parts base kernels data store model encoder decoder indexer session library)
set(drt_objects $<TARGET_OBJECTS:drt_commit_text>)
foreach(part ${drt_parts})
  list(APPEND drt_objects $<TARGET_OBJECTS:drt_${part}>)
endforeach()

# The sanitizers' runtime must be linked into a program, so these builds have no libdrt; tests link the objects.
if(DRT_SANITIZE OR DRT_FUZZ)
  return()
endif()

add_library(drt_shared SHARED ${drt_objects})
target_link_libraries(drt_shared PRIVATE drt_library)
target_link_options(drt_shared PRIVATE
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/library/libdrt.map -Wl,-z,defs -Wl,--exclude-libs,ALL)
if(FAISS_C_LIBRARY MATCHES "\\.a$")
  target_link_options(drt_shared PRIVATE -static-libstdc++)
endif()
set_target_properties(drt_shared PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME drt VERSION ${drt_abi}.0.0 SOVERSION ${drt_abi}
  EXPORT_NAME drt LINK_DEPENDS ${PROJECT_SOURCE_DIR}/library/libdrt.map)
target_include_directories(drt_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# libdrt.a has one object, whose only global symbols are the functions of drt.h, so that no symbol can occur twice.
set(drt_one_object ${PROJECT_BINARY_DIR}/generated/libdrt.o)
set(drt_archives "")
if(FAISS_LIBRARY MATCHES "\\.a$")
  set(drt_archives --start-group ${FAISS_C_LIBRARY} ${FAISS_LIBRARY} --end-group)
endif()
add_custom_command(OUTPUT ${drt_one_object} VERBATIM COMMAND_EXPAND_LISTS
  DEPENDS drt_library ${drt_objects} $<TARGET_OBJECTS:drt_faiss_compat>
  COMMAND ${CMAKE_LINKER} -r -o ${drt_one_object}.all ${drt_objects} $<TARGET_OBJECTS:drt_faiss_compat> ${drt_archives}
  COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=drt_*" ${drt_one_object}.all ${drt_one_object}
  COMMAND ${CMAKE_COMMAND} -E rm ${drt_one_object}.all)
add_library(drt_static STATIC ${drt_one_object})
set_source_files_properties(${drt_one_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(drt_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME drt EXPORT_NAME static)
get_property(drt_static_needs GLOBAL PROPERTY drt_static_needs)
list(APPEND drt_static_needs gomp stdc++ m pthread dl)
if(drt_cuda_on)
  list(APPEND drt_static_needs cudart)
endif()
target_link_libraries(drt_static INTERFACE ${drt_static_needs})
target_include_directories(drt_static INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

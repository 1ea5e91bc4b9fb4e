# Golden cases: the files of golden/data always, and every file of ${DRT_SHARED}/golden if that folder is beside
# the checkout (looked for when the test runs; golden/shared.sh says what it skips).
file(GLOB cases CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/golden/data/*.safetensors)
foreach(case ${cases})
  get_filename_component(name ${case} NAME_WE)
  add_test(NAME golden/${name} COMMAND test_golden ${case})
  drt_test_properties(golden/${name} golden)
  if(DRT_HAVE_AMX AND name MATCHES "^drt_")               # on a processor without AMX the same as above
    add_test(NAME golden/${name}_without_amx COMMAND test_golden --amx off ${case})
    drt_test_properties(golden/${name}_without_amx golden)
  endif()
endforeach()
add_test(NAME golden/shared COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/golden/shared.sh ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:test_golden>)
drt_test_properties(golden/shared golden)

# embed_bytes.cmake -- embed_bytes(OUT HEX): the bytes of a file(READ ... HEX) as the initializer of a C array.
function(embed_bytes out hex)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
  set(${out} "${bytes}" PARENT_SCOPE)
endfunction()

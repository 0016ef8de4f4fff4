# A room is one folder and one static library. Sources are found by name, so that a new file needs
# no edit here: *.cpp is host code, *_cuda.cpp needs the CUDA runtime, *_no_cuda.cpp takes its place
# in a build without CUDA, *.cu needs nvcc.

function(triptych_target_defaults target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>)
  if(TRIPTYCH_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  if(TRIPTYCH_SANITIZE)
    target_compile_options(${target} PUBLIC
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRIPTYCH_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${TRIPTYCH_SANITIZE})
  endif()
endfunction()

# Turns text files into one header with a constexpr string each, so that the binary needs no files
# beside it: db/schema.sql becomes kSchemaSql in generated/db/schema.sql.h.
function(triptych_embed room)
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME)
    set(output ${CMAKE_BINARY_DIR}/generated/${room}/${file}.h)
    add_custom_command(OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${CMAKE_SOURCE_DIR}/${room}/${file} -DOUTPUT=${output}
              -P ${CMAKE_SOURCE_DIR}/cmake/EmbedText.cmake
      DEPENDS ${CMAKE_SOURCE_DIR}/${room}/${file} ${CMAKE_SOURCE_DIR}/cmake/EmbedText.cmake
      COMMENT "Embedding ${room}/${file}" VERBATIM)
    target_sources(triptych_${room} PRIVATE ${output})
  endforeach()
endfunction()

function(triptych_room room)
  cmake_parse_arguments(ARG "" "" "ROOMS;LIBS;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/${room} ${room}/*.cpp)
  set(without_cuda ${sources})
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  list(FILTER without_cuda INCLUDE REGEX "_no_cuda\\.cpp$")
  if(NOT TRIPTYCH_CUDA)
    list(APPEND sources ${without_cuda})
  endif()
  if(ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${ARG_EXCLUDE})
  endif()
  list(TRANSFORM sources PREPEND ${room}/)
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty_${room}.cpp "")
    set(sources ${CMAKE_BINARY_DIR}/empty_${room}.cpp)
  endif()
  add_library(triptych_${room} STATIC ${sources})
  triptych_target_defaults(triptych_${room})
  foreach(lower ${ARG_ROOMS})
    target_link_libraries(triptych_${room} PUBLIC triptych_${lower})
  endforeach()
  target_link_libraries(triptych_${room} PUBLIC ${ARG_LIBS})

  file(GLOB_RECURSE embedded CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/${room}
       ${room}/*.sql ${room}/*.rules.yaml ${room}/adapters/*.py)
  triptych_embed(${room} ${embedded})

  if(TRIPTYCH_CUDA)
    triptych_room_cuda(${room})
  endif()
endfunction()

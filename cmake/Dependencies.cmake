# Third-party libraries, all from the distribution. Static where TRIPTYCH_PORTABLE asks for it and
# the distribution ships an archive (Highway has none: its 39 KB library travels in lib/).
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(hwy 1.0.3 REQUIRED)

if(TRIPTYCH_PORTABLE)
  set(Boost_USE_STATIC_LIBS ON)
  set(triptych_saved_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
endif()

find_package(Boost 1.74 REQUIRED COMPONENTS program_options)

# One imported target from a header and a library, for packages without a usable CMake config.
function(triptych_find_library target header library)
  cmake_parse_arguments(ARG "" "" "NEEDS" ${ARGN})
  string(MAKE_C_IDENTIFIER "TRIPTYCH_${library}" id)
  find_path(${id}_INCLUDE_DIR ${header} REQUIRED)
  find_library(${id}_LIBRARY ${library} REQUIRED)
  mark_as_advanced(${id}_INCLUDE_DIR ${id}_LIBRARY)
  add_library(${target} UNKNOWN IMPORTED)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${${id}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${${id}_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${ARG_NEEDS}")
endfunction()

triptych_find_library(SQLite::SQLite3 sqlite3.h sqlite3 NEEDS "${CMAKE_DL_LIBS};Threads::Threads;m")
triptych_find_library(yaml-cpp::yaml-cpp yaml-cpp/yaml.h yaml-cpp)
triptych_find_library(PCRE2::PCRE2 pcre2.h pcre2-8)
triptych_find_library(UTF8PROC::UTF8PROC utf8proc.h utf8proc)
triptych_find_library(xxHash::xxHash xxhash.h xxhash)

if(TRIPTYCH_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${triptych_saved_suffixes})
endif()

# What was built, from what: generated/base/version.h. It is made at build time, so that a new commit
# shows without configuring again, and rewritten only when a value changes, so that nothing is
# compiled twice. Only experiments/environment.cpp includes it.
if(CMAKE_SCRIPT_MODE_FILE)
  set(sha unknown)
  set(dirty false)
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} rev-parse HEAD WORKING_DIRECTORY ${SOURCE_DIR}
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      set(sha ${head})
      execute_process(COMMAND ${GIT} --no-optional-locks status --porcelain --untracked-files=no
                      WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE changes ERROR_QUIET)
      if(changes)
        set(dirty true)
      endif()
    endif()
  endif()
  string(REPLACE "\\" "\\\\" compiler "${COMPILER}")
  string(REPLACE "\"" "\\\"" compiler "${compiler}")
  string(CONCAT text
    "// Generated at build time.\n#pragma once\n\n#include <string_view>\n\nnamespace triptych {\n\n"
    "inline constexpr std::string_view kProgramVersion = \"${VERSION}\";\n"
    "inline constexpr std::string_view kGitSha = \"${sha}\";\n"
    "inline constexpr bool kGitDirty = ${dirty};\n"
    "inline constexpr std::string_view kCompiler = \"${compiler}\";\n\n}  // namespace triptych\n")
  set(old "")
  if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} old)
  endif()
  if(NOT text STREQUAL old)
    file(WRITE ${OUTPUT} "${text}")
  endif()
  return()
endif()

string(TOUPPER "${CMAKE_BUILD_TYPE}" triptych_build_type)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${triptych_build_type}}" triptych_flags)
add_custom_target(triptych_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR}
          -DOUTPUT=${CMAKE_BINARY_DIR}/generated/base/version.h -DVERSION=${PROJECT_VERSION}
          "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${triptych_flags}"
          -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/base/version.h
  COMMENT "Checking the version" VERBATIM)
add_dependencies(triptych_experiments triptych_version)

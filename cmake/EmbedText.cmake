# cmake -DINPUT=file -DOUTPUT=file.h -P EmbedText.cmake: one `inline constexpr std::string_view`.
# The name is made from the file name: schema.sql -> kSchemaSql, 0001_init.sql -> k0001InitSql.
file(READ ${INPUT} text)
get_filename_component(name ${INPUT} NAME)
string(REGEX REPLACE "[^A-Za-z0-9]+" ";" words ${name})
set(id k)
foreach(word ${words})
  string(SUBSTRING ${word} 0 1 first)
  string(SUBSTRING ${word} 1 -1 rest)
  string(TOUPPER ${first} first)
  string(APPEND id ${first}${rest})
endforeach()
# String literals are limited in length by some compilers, so each line becomes its own literal.
string(REPLACE "\\" "\\\\" text "${text}")
string(REPLACE "\"" "\\\"" text "${text}")
string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
file(WRITE ${OUTPUT} "// Generated from ${name}.\n#pragma once\n\n#include <string_view>\n\nnamespace triptych {\n\ninline constexpr std::string_view ${id} =\n    \"${text}\";\n\n}  // namespace triptych\n")

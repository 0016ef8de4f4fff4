// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/adapter_file.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file_writer.h"
#include "engine/adapters/hf_transformers.py.h"

namespace triptych {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 1> kAdapters = {
    {{"hf_transformers", kHfTransformersPy}}};

}  // namespace

std::optional<std::string_view> adapter_text(std::string_view name) {
  for (const auto& [known, text] : kAdapters) {
    if (known == name) return text;
  }
  return std::nullopt;
}

std::vector<std::string> adapter_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : kAdapters) names.emplace_back(name);
  return names;
}

std::string adapter_python() {
  const char* python = std::getenv("TRIPTYCH_PYTHON");
  return python != nullptr && *python != '\0' ? python : "python3";
}

Result<std::shared_ptr<const AdapterFile>> AdapterFile::write(std::string_view name) {
  const auto text = adapter_text(name);
  TRIPTYCH_CHECK(text.has_value(), "a known adapter");
  std::error_code error;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
  std::string folder = (temporary / "triptych-adapter-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    return fail(ErrorCode::kIo, std::strerror(errno), folder);
  }
  auto file = std::make_shared<AdapterFile>(folder);
  file->path_ = file->folder_ / (std::string(name) + ".py");
  TRIPTYCH_TRY(FileWriter writer, FileWriter::create(file->path_));
  TRIPTYCH_RETURN_IF_ERROR(writer.write(*text));
  TRIPTYCH_RETURN_IF_ERROR(writer.close());
  return std::shared_ptr<const AdapterFile>(std::move(file));
}

AdapterFile::~AdapterFile() {
  std::error_code ignored;  // a destructor has nobody to tell
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace triptych

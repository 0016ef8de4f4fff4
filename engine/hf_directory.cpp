// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
// open_hf_directory: a model as Hugging Face Transformers stores it.
#include <set>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/strings.h"
#include "engine/checkpoint.h"
#include "engine/file_checkpoint.h"
#include "engine/hf_config.h"
#include "engine/hf_names.h"
#include "engine/json.h"
#include "engine/safetensors.h"
#include "engine/tokenizer.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

/// File names of the shards, from the index if there is one, and the tensors that it promises.
struct ShardList {
  std::set<std::string> names;
  std::unordered_map<std::string, std::string> shard_of;  ///< Empty without an index.
};

Result<ShardList> list_shards(const fs::path& directory, std::vector<MappedFile>& files) {
  std::error_code ignored;  // a file that cannot be looked at shows when it is opened
  const fs::path index_path = directory / kHfIndexFile;
  if (fs::exists(directory / kHfOneFile, ignored) || !fs::exists(index_path, ignored)) {
    return ShardList{{kHfOneFile}, {}};
  }
  const std::string where = index_path.string();
  TRIPTYCH_TRY(auto file, MappedFile::open(index_path));
  TRIPTYCH_TRY(const Json index, parse_json_object(file.text(), where));
  files.push_back(std::move(file));
  TRIPTYCH_TRY(const Json* map, json_member(index, "weight_map", Json::value_t::object, where));
  if (map == nullptr) return fail(ErrorCode::kCorrupt, "\"weight_map\" is missing", where);
  ShardList shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return fail(ErrorCode::kCorrupt, "the shard of tensor \"" + tensor + "\" is no string",
                  where);
    }
    const auto name = shard.get<std::string>();
    // A downloaded model must not make the program read files from elsewhere.
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain) {
      return fail(ErrorCode::kCorrupt,
                  "the shard of tensor \"" + tensor + "\" is \"" + name +
                      "\", expected a file name without a folder",
                  where);
    }
    shards.names.insert(name);
    shards.shard_of.emplace(tensor, name);
  }
  return shards;
}

struct IndexedTensor {
  SafetensorsTensor tensor;
  std::string where;
};
using TensorIndex = std::unordered_map<std::string, IndexedTensor>;

Status add_shard(const fs::path& path, const ShardList& shards, std::vector<MappedFile>& files,
                 TensorIndex& index) {
  TRIPTYCH_TRY(auto file, MappedFile::open(path));
  const std::string where = path.string();
  TRIPTYCH_TRY(auto tensors, parse_safetensors(file.bytes(), where));
  files.push_back(std::move(file));
  for (SafetensorsTensor& tensor : tensors) {
    const std::string name = tensor.name;
    const auto listed = shards.shard_of.find(name);
    // With an index, a tensor counts only in the shard that the index names.
    if (!shards.shard_of.empty() &&
        (listed == shards.shard_of.end() || listed->second != path.filename())) {
      return fail(ErrorCode::kCorrupt,
                  "tensor \"" + name + "\" is not in this shard according to " + kHfIndexFile,
                  where);
    }
    index.emplace(name, IndexedTensor{std::move(tensor), where});
  }
  return {};
}

Status add_tensor(const TensorSpec& spec, const IndexedTensor& found, FileCheckpoint& checkpoint) {
  const SafetensorsTensor& tensor = found.tensor;
  if (!tensor.dtype) {
    return fail(ErrorCode::kUnsupported,
                "tensor \"" + tensor.name + "\" has type \"" + tensor.type +
                    "\", expected F32, F16 or BF16",
                found.where);
  }
  const auto alignment = static_cast<uintptr_t>(dtype_info(*tensor.dtype).block_bytes);
  if (reinterpret_cast<uintptr_t>(tensor.data.data()) % alignment != 0) {
    return fail(ErrorCode::kUnsupported,
                "the data of tensor \"" + tensor.name + "\" of type " + tensor.type +
                    str_format(" does not start at a multiple of %d bytes; save the file again "
                               "with a current version of safetensors, which pads the header",
                               static_cast<int>(alignment)),
                found.where);
  }
  return checkpoint.add(spec, {.name = tensor.name,
                               .where = found.where,
                               .shape = tensor.shape,
                               .dtype = *tensor.dtype,
                               .data = tensor.data.data()});
}

/// Tensors that some writers add and that the forward pass does not use.
bool is_ignored(const std::string& name, const ModelConfig& config) {
  constexpr std::string_view kBuffer = ".rotary_emb.inv_freq";
  if (name.size() >= kBuffer.size() &&
      name.compare(name.size() - kBuffer.size(), kBuffer.size(), kBuffer) == 0) {
    return true;
  }
  // Transformers ties by the config, whatever the file holds.
  return config.tie_word_embeddings && name == "lm_head.weight";
}

Status add_tensors(TensorIndex index, const fs::path& directory, FileCheckpoint& checkpoint) {
  TRIPTYCH_RETURN_IF_ERROR(
      for_each_tensor(checkpoint.config(), [&](const TensorSpec& spec) -> Status {
        const auto found = index.find(hf_tensor_name(spec.name));
        if (found == index.end()) {
          return fail(ErrorCode::kCorrupt,
                      "tensor \"" + hf_tensor_name(spec.name) + "\" is missing",
                      directory.string());
        }
        const IndexedTensor tensor = std::move(found->second);
        index.erase(found);
        return add_tensor(spec, tensor, checkpoint);
      }));
  for (const auto& [name, tensor] : index) {
    if (is_ignored(name, checkpoint.config())) continue;
    // A bias or an extra norm changes the results; running without it would be a silent error.
    return fail(
        ErrorCode::kUnsupported,
        "tensor \"" + name + "\" has no place in a " + checkpoint.config().architecture + " model",
        tensor.where);
  }
  return {};
}

/// `config` is a config.json that has been read without an error.
std::string origin_of(std::string_view config, const std::string& name) {
  const Json json = Json::parse(config, nullptr, false);
  const auto key = json.find(kSyntheticKey);
  const bool synthetic = key != json.end() && *key == true;
  return (synthetic ? "synthetic:" : "safetensors:") + name;
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_hf_directory(const fs::path& path) {
  // "dir/" and "dir" are the same model and get the same name.
  const fs::path directory = path.has_filename() ? path : path.parent_path();
  const std::string name = directory.filename().string();
  std::vector<MappedFile> files;
  TRIPTYCH_TRY(auto config_file, MappedFile::open(directory / "config.json"));
  TRIPTYCH_TRY(const ModelConfig config,
               parse_hf_config(config_file.text(), name, config_file.path().string()));
  const std::string origin = origin_of(config_file.text(), name);
  files.push_back(std::move(config_file));

  TRIPTYCH_TRY(const ShardList shards, list_shards(directory, files));
  TensorIndex index;
  for (const std::string& shard : shards.names) {
    TRIPTYCH_RETURN_IF_ERROR(add_shard(directory / shard, shards, files, index));
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  const fs::path tokenizer_path = directory / "tokenizer.json";
  std::error_code ignored;  // a file that cannot be looked at shows when it is opened
  if (fs::exists(tokenizer_path, ignored)) {
    TRIPTYCH_TRY(tokenizer, load_tokenizer_json(tokenizer_path.string()));
    if (tokenizer->vocab_size() > config.vocab_size) {
      return fail(ErrorCode::kCorrupt,
                  str_format("the tokenizer has %lld tokens, the embedding %lld rows",
                             static_cast<long long>(tokenizer->vocab_size()),
                             static_cast<long long>(config.vocab_size)),
                  tokenizer_path.string());
    }
    TRIPTYCH_TRY(auto tokenizer_file, MappedFile::open(tokenizer_path));
    files.push_back(std::move(tokenizer_file));
  }
  auto checkpoint =
      std::make_shared<FileCheckpoint>(config, origin, std::move(files), std::move(tokenizer));
  TRIPTYCH_RETURN_IF_ERROR(add_tensors(std::move(index), directory, *checkpoint));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace triptych

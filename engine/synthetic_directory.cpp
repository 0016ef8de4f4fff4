// SPDX-FileCopyrightText: Triptych contributors
// SPDX-License-Identifier: Apache-2.0
#include "engine/synthetic_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/file_writer.h"
#include "base/strings.h"
#include "base/units.h"
#include "engine/byte_alphabet.h"
#include "engine/hf_config.h"
#include "engine/hf_names.h"
#include "engine/model_tensors.h"
#include "engine/synthetic.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quantize.h"

namespace triptych {
namespace {

namespace fs = std::filesystem;

// Elements made and written at a time by one thread: 2 to 8 MiB, so that a system call costs
// nothing and the numbers are still in the cache when they are written.
constexpr int64_t kChunk = int64_t{1} << 20;
constexpr int64_t kByteTokens = 256;

/// Tensors of one file; their data lies in this order.
struct Shard {
  std::vector<TensorSpec> tensors;
  int64_t bytes = 0;
};

/// The folder under a name of its own until it is complete; gone again if it never is. Locked while
/// its writer lives, so that what a killed one has left can be told from what is being written.
class Staging {
 public:
  explicit Staging(const fs::path& target) : target_(target) {
    prefix_ = "." + target.filename().string() + ".partial-";
    path_ = target.parent_path() / (prefix_ + std::to_string(::getpid()));
  }
  ~Staging() {
    std::error_code ignored;  // a destructor has nobody to tell
    if (made_) fs::remove_all(path_, ignored);
    if (lock_ >= 0) ::close(lock_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  Status make() {
    remove_abandoned();
    std::error_code error;
    made_ = fs::create_directory(path_, error);
    if (!made_) return fail(ErrorCode::kIo, error ? error.message() : "exists already", path_);
    lock_ = lock(path_);  // where the file system has no such locks nothing is taken for abandoned
    return {};
  }

  Status give_name() {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE) == 0 ||
        // Not every file system knows the flag. A folder with something in it is never replaced.
        (errno == EINVAL && std::rename(path_.c_str(), target_.c_str()) == 0)) {
      made_ = false;
      return {};
    }
    return fail(ErrorCode::kIo, std::strerror(errno), target_.string());
  }

 private:
  /// A descriptor that holds the lock of a folder, or -1.
  static int lock(const fs::path& folder) {
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    ::close(fd);
    return -1;
  }

  /// Folders of writers of this target that were killed. A writer that has made its folder and not
  /// locked it yet is known by its process.
  void remove_abandoned() const {
    std::error_code ignored;  // what cannot be removed hinders nobody
    for (const auto& entry : fs::directory_iterator(target_.parent_path(), ignored)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix_)) continue;
      pid_t writer = 0;
      const char* const end = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + prefix_.size(), end, writer);
      if (error != std::errc() || stop != end || writer <= 0) continue;
      const bool gone = writer == ::getpid() || (::kill(writer, 0) != 0 && errno == ESRCH);
      const int fd = gone ? lock(entry.path()) : -1;
      if (fd < 0) continue;
      fs::remove_all(entry.path(), ignored);
      ::close(fd);
    }
  }

  fs::path target_;
  std::string prefix_;
  fs::path path_;
  bool made_ = false;
  int lock_ = -1;
};

/// In double: the sizes are the user's, and their product may not fit 64 bits.
double model_bytes(const ModelConfig& config, DType dtype) {
  ModelConfig layer = config;
  layer.num_layers = 1;
  layer.window_layers.clear();
  double one = 0;
  double rest = 0;
  const Status visited = for_each_tensor(layer, [&](const TensorSpec& spec) -> Status {
    double& part = spec.name.starts_with("layers.") ? one : rest;
    part += static_cast<double>(spec.rows) * static_cast<double>(spec.columns);
    return {};
  });
  TRIPTYCH_CHECK(visited.has_value(), "the visitor gives no error");
  return (rest + one * static_cast<double>(config.num_layers)) * dtype_info(dtype).block_bytes;
}

Status check_room(const fs::path& parent, double needed) {
  struct statvfs info {};
  if (::statvfs(parent.c_str(), &info) != 0) {
    return fail(ErrorCode::kIo, std::strerror(errno), parent.string());
  }
  const double room = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (needed <= room) return {};
  return fail(
      ErrorCode::kIo,
      "the model has " + format_bytes(needed) + ", the disk has room for " + format_bytes(room),
      parent.string());
}

std::vector<Shard> plan_shards(const ModelConfig& config,
                               const SyntheticDirectoryOptions& options) {
  std::vector<Shard> shards(1);
  const Status visited = for_each_tensor(config, [&](const TensorSpec& spec) -> Status {
    const int64_t bytes = spec.rows * row_bytes(options.dtype, spec.columns);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > options.max_shard_bytes) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(spec);
    shards.back().bytes += bytes;
    return {};
  });
  TRIPTYCH_CHECK(visited.has_value(), "the visitor gives no error");
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return kHfOneFile;
  return str_format("model-%05zu-of-%05zu.safetensors", index + 1, count);
}

const char* torch_name(DType dtype) {
  return dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
}

std::string shard_header(const Shard& shard, DType dtype) {
  const char* type = dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16";
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorSpec& spec : shard.tensors) {
    const int64_t end = offset + spec.rows * row_bytes(dtype, spec.columns);
    const Json shape = spec.is_vector ? Json{spec.columns} : Json{spec.rows, spec.columns};
    header[hf_tensor_name(spec.name)] = {
        {"dtype", type}, {"shape", shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8
  const auto size = static_cast<uint64_t>(text.size());
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + text;
}

/// One of the files beside the weights.
struct SmallFile {
  std::string name;
  std::string text;
};

SmallFile json_file(const char* name, const Json& json) { return {name, json.dump(2) + "\n"}; }

SmallFile index_file(const std::vector<Shard>& shards) {
  Json map = Json::object();
  int64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    bytes += shards[i].bytes;
    for (const TensorSpec& spec : shards[i].tensors) {
      map[hf_tensor_name(spec.name)] = shard_name(i, shards.size());
    }
  }
  return json_file(kHfIndexFile, {{"metadata", {{"total_size", bytes}}}, {"weight_map", map}});
}

/// One token a byte, no merges: any text has ids, and ids mean the same in every engine.
void add_tokenizer(std::vector<SmallFile>& files) {
  Json vocab = Json::object();
  for (int byte = 0; byte < kByteTokens; ++byte) {
    vocab[encode_byte(static_cast<uint8_t>(byte))] = byte;
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  files.push_back(
      json_file("tokenizer.json",
                {{"version", "1.0"},
                 {"added_tokens", Json::array()},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", byte_level},
                 {"post_processor", nullptr},
                 {"decoder", byte_level},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}));
  files.push_back(
      json_file("tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"}}));
}

bool has_tokenizer(const ModelConfig& config) { return config.vocab_size >= kByteTokens; }

std::vector<SmallFile> small_files(const ModelConfig& config,
                                   const SyntheticDirectoryOptions& options,
                                   const std::vector<Shard>& shards) {
  std::vector<SmallFile> files;
  if (shards.size() > 1) files.push_back(index_file(shards));
  if (has_tokenizer(config)) add_tokenizer(files);
  Json json = hf_config_json(config, torch_name(options.dtype));
  json[kSyntheticKey] = true;
  files.push_back(json_file("config.json", json));
  return files;
}

/// The file begins with `start` and has `bytes` in all.
Status check_file(const fs::path& path, const std::string& start, int64_t bytes) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return fail(ErrorCode::kCorrupt, error.message(), path.string());
  if (size != static_cast<uintmax_t>(bytes)) {
    return fail(ErrorCode::kCorrupt,
                str_format("%llu bytes, expected %lld", static_cast<unsigned long long>(size),
                           static_cast<long long>(bytes)),
                path.string());
  }
  std::string found(start.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(found.data(), static_cast<std::streamsize>(found.size()))) {
    return fail(ErrorCode::kCorrupt, "cannot be read", path.string());
  }
  if (found == start) return {};
  return fail(ErrorCode::kCorrupt, "not the text that belongs to this model", path.string());
}

class Writer {
 public:
  Writer(const ModelConfig& config, const SyntheticDirectoryOptions& options,
         const fs::path& directory)
      : config_(config), options_(options), directory_(directory) {}

  Result<SyntheticDirectory> write() {
    const std::vector<Shard> shards = plan_shards(config_, options_);
    SyntheticDirectory written{.parameters = config_.num_parameters(),
                               .num_files = static_cast<int64_t>(shards.size()),
                               .has_tokenizer = has_tokenizer(config_)};
    std::vector<FileWriter> files;  // closed at the end: the device works meanwhile
    for (size_t i = 0; i < shards.size(); ++i) {
      TRIPTYCH_TRY(FileWriter file, write_shard(shards[i], shard_name(i, shards.size())));
      files.push_back(std::move(file));
      written.bytes += shards[i].bytes;
    }
    for (FileWriter& file : files) TRIPTYCH_RETURN_IF_ERROR(file.close());
    for (const SmallFile& small : small_files(config_, options_, shards)) {
      TRIPTYCH_TRY(FileWriter file, FileWriter::create(directory_ / small.name));
      TRIPTYCH_RETURN_IF_ERROR(file.write(small.text));
      TRIPTYCH_RETURN_IF_ERROR(file.close());
    }
    return written;
  }

 private:
  /// A part of a tensor and its place in the file.
  struct Chunk {
    const TensorSpec* spec;
    int64_t first;
    int64_t count;
    int64_t offset;
  };
  /// What one thread needs to make a chunk.
  struct Buffers {
    std::vector<Half> halves;
    std::vector<float> floats;
    std::vector<std::byte> rounded;
  };

  Result<FileWriter> write_shard(const Shard& shard, const std::string& name) {
    TRIPTYCH_TRY(FileWriter file, FileWriter::create(directory_ / name));
    const std::string header = shard_header(shard, options_.dtype);
    TRIPTYCH_RETURN_IF_ERROR(file.write(header));
    std::vector<Chunk> chunks;
    auto offset = static_cast<int64_t>(header.size());
    for (const TensorSpec& spec : shard.tensors) {
      const int64_t count = spec.rows * spec.columns;
      for (int64_t first = 0; first < count; first += kChunk) {
        const int64_t size = std::min(kChunk, count - first);
        chunks.push_back({&spec, first, size, offset});
        offset += row_bytes(options_.dtype, size);
      }
    }
    TRIPTYCH_RETURN_IF_ERROR(write_chunks(chunks, file));
    return file;
  }

  Status write_chunks(const std::vector<Chunk>& chunks, const FileWriter& file) {
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Status first_error;
    auto write = [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end && !failed; ++i) {
        const Status written = interrupted()
                                   ? fail(ErrorCode::kIo, "interrupted")
                                   : write_chunk(chunks[static_cast<size_t>(i)],
                                                 buffers_[static_cast<size_t>(worker)], file);
        if (written) continue;
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) first_error = written;
      }
    };
    pool_.parallel_for(static_cast<int64_t>(chunks.size()), 1, write);
    return first_error;
  }

  Status write_chunk(const Chunk& chunk, Buffers& buffers, const FileWriter& file) const {
    auto& [halves, floats, rounded] = buffers;
    halves.resize(static_cast<size_t>(chunk.count));
    synthetic_values(config_, options_.seed, *chunk.spec, chunk.first, halves);
    if (options_.dtype == DType::kF16) {
      return file.write_at(chunk.offset, std::as_bytes(std::span(halves)));
    }
    floats.resize(halves.size());
    std::transform(halves.begin(), halves.end(), floats.begin(), half_to_float);
    if (options_.dtype == DType::kF32) {
      return file.write_at(chunk.offset, std::as_bytes(std::span(floats)));
    }
    rounded.resize(static_cast<size_t>(row_bytes(options_.dtype, chunk.count)));
    quantize_row(floats.data(), chunk.count, options_.dtype, rounded.data());
    return file.write_at(chunk.offset, rounded);
  }

  [[nodiscard]] bool interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }

  const ModelConfig& config_;
  const SyntheticDirectoryOptions& options_;
  const fs::path& directory_;
  cpu::ThreadPool pool_{cpu::available_cores()};
  std::vector<Buffers> buffers_{static_cast<size_t>(pool_.num_threads())};  ///< Of each thread.
};

}  // namespace

Result<SyntheticDirectory> write_synthetic_directory(const ModelConfig& config,
                                                     const fs::path& directory,
                                                     const SyntheticDirectoryOptions& options) {
  TRIPTYCH_CHECK(dtype_info(options.dtype).block_elements == 1, "a plain type");
  TRIPTYCH_RETURN_IF_ERROR(validate(config, config.name));
  if (directory.empty()) {
    return fail(ErrorCode::kInvalidArgument, "an empty name, expected that of a folder to make");
  }
  // "dir/" and "dir" are the same; a name without a folder lies in the working directory.
  fs::path target = fs::absolute(directory).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  std::error_code ignored;  // what cannot be looked at shows when it is made
  if (fs::exists(fs::symlink_status(target, ignored))) {
    return fail(ErrorCode::kInvalidArgument, "exists already; nothing was written",
                directory.string());
  }
  TRIPTYCH_RETURN_IF_ERROR(check_room(target.parent_path(), model_bytes(config, options.dtype)));
  Staging staging(target);
  TRIPTYCH_RETURN_IF_ERROR(staging.make());
  TRIPTYCH_TRY(const SyntheticDirectory written, Writer(config, options, staging.path()).write());
  // Closing a file waits for the device, which may have been long.
  if (options.interrupted != nullptr && options.interrupted->load()) {
    return fail(ErrorCode::kIo, "interrupted", directory.string());
  }
  TRIPTYCH_RETURN_IF_ERROR(staging.give_name());
  return written;
}

Status check_synthetic_directory(const ModelConfig& config, const fs::path& directory,
                                 const SyntheticDirectoryOptions& options) {
  const std::vector<Shard> shards = plan_shards(config, options);
  for (const SmallFile& small : small_files(config, options, shards)) {
    TRIPTYCH_RETURN_IF_ERROR(
        check_file(directory / small.name, small.text, static_cast<int64_t>(small.text.size())));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string header = shard_header(shards[i], options.dtype);
    TRIPTYCH_RETURN_IF_ERROR(check_file(directory / shard_name(i, shards.size()), header,
                                        static_cast<int64_t>(header.size()) + shards[i].bytes));
  }
  return {};
}

}  // namespace triptych

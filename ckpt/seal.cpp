#include "ckpt/seal.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

#include "ckpt/logical_hash.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/sha256.h"
#include "core/layout/box.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kSchema = "msckpt-seal/1";
constexpr int64_t kMaxSealBytes = int64_t{1} << 30;

// Removes the folder prefix: a seal must not depend on the folder's location.
std::string relative_place(std::string place, const fs::path& folder) {
  for (const std::string& name : {folder.string(), fs::absolute(folder).lexically_normal().string()}) {
    for (const char* end : {"/", ":"}) {
      const std::string prefix = name + end;
      for (size_t at; (at = place.find(prefix)) != std::string::npos;) place.erase(at, prefix.size());
    }
  }
  return place;
}

// Hashes of all tensors of a source, and the damage that its reader found.
struct TensorHashes {
  std::vector<SealedTensor> tensors;
  std::vector<bool> damaged;  // per tensor
  std::vector<Finding> findings;
  int64_t bytes = 0;
};

class HashPass {
 public:
  HashPass(Source& source, const fs::path& folder, const SealOptions& options)
      : source_(source), table_(source.shards()), folder_(folder), options_(options) {}

  // keep_going: report damage as findings instead of throwing.
  TensorHashes run(bool keep_going) {
    result_.damaged.resize(table_.num_tensors());
    check_coverage(table_, 4, [&](int32_t tensor, std::string text) {
      if (!keep_going) throw Error(ErrorCode::kCorruptData, text);
      damage(tensor, "", std::move(text));
    });
    missing_.resize(table_.num_tensors());
    logical_.resize(table_.num_tensors());
    places_.resize(table_.num_tensors());
    for (size_t i = 0; i < table_.size(); ++i) {
      if (table_.replica_id(i) != 0) continue;
      shards_.push_back(static_cast<int32_t>(i));
      ++missing_[static_cast<size_t>(table_.tensor_of(i))];
      result_.bytes += table_.size_bytes(i);
    }
    result_.tensors.resize(table_.num_tensors());
    for (size_t t = 0; t < table_.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const auto shape = table_.global_shape(tensor);
      result_.tensors[t] = {std::string(table_.key(tensor)),
                            table_.role(tensor),
                            table_.dtype(tensor),
                            {shape.begin(), shape.end()},
                            0,
                            {}};
    }
    std::exception_ptr error;
    std::atomic<size_t> next{0};
    const auto work = [&] {
      std::vector<std::byte> buffer;
      try {
        for (size_t i = next++; i < shards_.size(); i = next++) hash_shard(shards_[i], buffer, keep_going);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (error == nullptr) error = std::current_exception();
        next = shards_.size();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (error != nullptr) std::rethrow_exception(error);
    return std::move(result_);
  }

 private:
  void damage(int32_t tensor, std::string place, std::string text) {
    const core::TensorRole role = table_.role(tensor);
    const std::string key(table_.key(tensor));
    result_.damaged[static_cast<size_t>(tensor)] = true;
    result_.findings.push_back({std::move(place),
                                role == core::TensorRole::kParam ? key : cat(key, " (", core::role_name(role), ")"), -1,
                                -1, std::move(text)});
  }

  void hash_shard(int32_t shard, std::vector<std::byte>& buffer, bool keep_going) {
    const auto index = static_cast<size_t>(shard);
    const core::ShardedTensor meta = table_[index];
    const auto t = static_cast<size_t>(table_.tensor_of(index));
    const int64_t item = core::size_of(meta.dtype), total = table_.elements(index), step = kChunkBytes / item;
    LogicalPartial partial;
    kernels::Xxh3 hash;
    std::string failure;
    try {
      for (int64_t first = 0; first < total; first += step) {
        if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
        layout::for_each_box_of_range(meta.local_shape, first, std::min(step, total - first),
                                      [&](const layout::Box& box, int64_t at) {
                                        const int64_t count = core::num_elements(box.extent);
                                        buffer.resize(static_cast<size_t>(count * item));
                                        source_.read(shard, box.offset, box.extent, buffer.data());
                                        hash.update(buffer.data(), buffer.size());
                                        add_logical(meta, at, count, buffer.data(), partial);
                                        std::lock_guard lock(mutex_);
                                        done_ += static_cast<int64_t>(buffer.size());
                                        if (options_.progress) options_.progress(done_, result_.bytes);
                                      });
      }
    } catch (const Error& e) {
      if (!keep_going || e.code() != ErrorCode::kCorruptData) throw;
      failure = e.what();
    }
    std::lock_guard lock(mutex_);
    const std::string place = relative_place(source_.describe(shard), folder_);
    if (!failure.empty()) damage(table_.tensor_of(index), place, relative_place(std::move(failure), folder_));
    places_[t][place].emplace_back(meta.global_offset, hash.digest());
    if (!result_.damaged[t]) logical_[t].merge(partial);
    if (--missing_[t] > 0) return;
    finish(t);
  }

  void finish(size_t t) {
    SealedTensor& tensor = result_.tensors[t];
    if (!result_.damaged[t]) tensor.logical_xxh3 = finish_logical(tensor.dtype, tensor.shape, logical_[t]);
    logical_[t] = {};
    for (auto& [place, pieces] : places_[t]) {  // a stored tensor may correspond to many boxes
      std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
        return std::lexicographical_compare(a.first.begin(), a.first.end(), b.first.begin(), b.first.end());
      });
      kernels::Xxh3 all;
      for (const auto& [offset, hash] : pieces) all.update(&hash, sizeof hash);
      tensor.places.emplace_back(place, all.digest());
    }
    places_[t].clear();
  }

  Source& source_;
  const ShardTable& table_;
  const fs::path& folder_;
  const SealOptions& options_;
  TensorHashes result_;
  std::vector<int32_t> shards_;
  std::mutex mutex_;
  std::vector<int64_t> missing_;  // shards of each tensor not yet hashed
  std::vector<LogicalPartial> logical_;
  std::vector<std::map<std::string, std::vector<std::pair<core::Dims, uint64_t>>>> places_;
  int64_t done_ = 0;
};

// Regular files below the folder, sorted by name, except the seal's own.
std::vector<SealedFile> files_in(const fs::path& folder) {
  std::vector<SealedFile> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).generic_string();
    if (name == kSealName || name == kSumsName || !fs::is_regular_file(entry.path())) continue;
    files.push_back({name, static_cast<int64_t>(fs::file_size(entry.path())), ""});
  }
  std::sort(files.begin(), files.end(), [](const SealedFile& a, const SealedFile& b) { return a.name < b.name; });
  return files;
}

// Computes the SHA-256 of the files, several at a time.
void sum_files(const fs::path& folder, std::vector<SealedFile>& files, const SealOptions& options) {
  int64_t total = 0, done = 0;
  for (const SealedFile& file : files) total += file.bytes;
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<size_t> next{0};
  const auto work = [&] {
    try {
      for (size_t i = next++; i < files.size(); i = next++) {
        files[i].sha256 = core::sha256_of_file((folder / files[i].name).string(), [&](int64_t bytes) {
          if (options.stopped && options.stopped()) throw Error(ErrorCode::kIo, "interrupted");
          std::lock_guard lock(mutex);
          done += bytes;
          if (options.progress) options.progress(done, total);
        });
      }
    } catch (...) {
      std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
      next = files.size();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error != nullptr) std::rethrow_exception(error);
}

// A line of `sha256sum`: if the name has a backslash or newline it is escaped, and the line starts with a backslash.
std::string sum_line(const std::string& sha256, const std::string& name) {
  std::string escaped;
  for (const char c : name) {
    if (c == '\\') {
      escaped += "\\\\";
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\r') {
      escaped += "\\r";
    } else {
      escaped += c;
    }
  }
  return cat(escaped == name ? "" : "\\", sha256, "  ", escaped, "\n");
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_inner_name(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && name.find('\0') == std::string::npos && !path.is_absolute() &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".." || part == "."; });
}

// ", with 3 of 15 tensors (model.norm.weight, ..)": the tensors lost with a file; empty if the seal lists none in it.
std::string tensors_in_text(const Seal& seal, const std::string& file) {
  int64_t count = 0;
  std::string_view first;
  for (const SealedTensor& tensor : seal.tensors) {
    const bool here = std::any_of(tensor.places.begin(), tensor.places.end(),
                                  [&](const auto& place) { return place.first.starts_with(file + ":"); });
    if (here && count++ == 0) first = tensor.key;
  }
  if (count == 0) return "";
  return cat(", with ", count, " of ", seal.tensors.size(), " tensors (", first, count > 1 ? ", ..)" : ")");
}

}  // namespace

Seal make_seal(Source& source, const fs::path& folder, const std::string& format, const SealOptions& options) {
  Seal seal;
  seal.format = format;
  seal.iteration = source.info().iteration;
  seal.tensors = HashPass(source, folder, options).run(false).tensors;
  core::confine_reads(folder.string());
  seal.files = files_in(folder);
  sum_files(folder, seal.files, options);
  return seal;
}

std::string dump_seal(const Seal& seal) {
  json tensors = json::array(), files = json::array();
  for (const SealedTensor& tensor : seal.tensors) {
    json places = json::object();
    for (const auto& [place, hash] : tensor.places) places[place] = core::hex16(hash);
    tensors.push_back({{"name", tensor.key},
                       {"role", core::role_name(tensor.role)},
                       {"dtype", core::dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"logical_xxh3", core::hex16(tensor.logical_xxh3)},
                       {"places", std::move(places)}});
  }
  for (const SealedFile& file : seal.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  // One entry per line, so that diff can compare two seals.
  std::string text = cat("{\"schema\": \"", kSchema, "\", \"format\": ", core::dump_json(seal.format),
                         ", \"iteration\": ", seal.iteration, ",\n\"tensors\": [");
  for (size_t i = 0; i < tensors.size(); ++i) text += cat(i == 0 ? "\n" : ",\n", core::dump_json(tensors[i]));
  text += "\n],\n\"files\": [";
  for (size_t i = 0; i < files.size(); ++i) text += cat(i == 0 ? "\n" : ",\n", core::dump_json(files[i]));
  return text + "\n]}\n";
}

void write_seal(const fs::path& folder, const Seal& seal) {
  const std::string text = dump_seal(seal);
  core::Sha256 own;
  own.update(std::as_bytes(std::span(text)));
  std::string sums;
  for (const SealedFile& file : seal.files) sums += sum_line(file.sha256, file.name);
  sums += sum_line(own.hex(), kSealName);
  core::write_text_atomically((folder / kSealName).string(), text);
  core::write_text_atomically((folder / kSumsName).string(), sums);
}

Seal parse_seal(std::string_view text, std::string_view where) {
  const json document = core::parse_json(text, where);
  if (const std::string schema = core::json_string(document, "schema", where); schema != kSchema) {
    throw Error(ErrorCode::kCorruptData, cat(where, ": not a seal of msckpt: its schema is not ", kSchema));
  }
  Seal seal;
  seal.format = core::json_string(document, "format", where);
  seal.iteration = core::json_count(document, "iteration", where);
  std::set<std::pair<std::string, core::TensorRole>> names;
  for (const json& entry : core::json_array(document, "tensors", where)) {
    SealedTensor tensor;
    tensor.key = core::json_string(entry, "name", where);
    tensor.role = core::parse_role(core::json_string(entry, "role", where));
    const std::string dtype = core::json_string(entry, "dtype", where);
    const auto known = core::parse_dtype(dtype);
    if (!known) throw Error(ErrorCode::kCorruptData, cat(where, ": ", tensor.key, ": unknown element type ", dtype));
    tensor.dtype = *known;
    const json& shape = core::json_array(entry, "shape", where);
    if (shape.size() > layout::kMaxAxes)
      throw Error(ErrorCode::kCorruptData, cat(where, ": ", tensor.key, ": too many axes"));
    for (const json& axis : shape) {
      if (!axis.is_number_unsigned() || axis.get<uint64_t>() > uint64_t{1} << 48) {
        throw Error(ErrorCode::kCorruptData, cat(where, ": ", tensor.key, ": expected a shape of integers"));
      }
      tensor.shape.push_back(axis.get<int64_t>());
    }
    tensor.logical_xxh3 = core::parse_hex16(core::json_string(entry, "logical_xxh3", where), where);
    for (const auto& [place, hash] : core::json_object(entry, "places", where).items()) {
      if (!hash.is_string())
        throw Error(ErrorCode::kCorruptData, cat(where, ": ", tensor.key, ": a hash is not a string"));
      tensor.places.emplace_back(place, core::parse_hex16(hash.get<std::string>(), where));
    }
    if (!names.emplace(tensor.key, tensor.role).second) {
      throw Error(ErrorCode::kCorruptData, cat(where, ": ", tensor.key, " is listed twice"));
    }
    seal.tensors.push_back(std::move(tensor));
  }
  for (const json& entry : core::json_array(document, "files", where)) {
    SealedFile file = {core::json_string(entry, "name", where), core::json_count(entry, "bytes", where),
                       core::json_string(entry, "sha256", where)};
    if (!is_sha256(file.sha256)) {
      throw Error(ErrorCode::kCorruptData, cat(where, ": the sha256 of a file is not 64 lower-case hex digits"));
    }
    if (!is_inner_name(file.name)) {
      throw Error(ErrorCode::kCorruptData, cat(where, ": names a file outside its folder"));
    }
    seal.files.push_back(std::move(file));
  }
  return seal;
}

Seal read_seal(const fs::path& path) {
  return parse_seal(core::read_text(path.string(), kMaxSealBytes), path.string());
}

std::optional<Seal> find_seal(const fs::path& folder) {
  if (!fs::exists(folder / kSealName)) return std::nullopt;
  core::confine_reads(folder.string());
  return read_seal(folder / kSealName);
}

std::vector<Finding> verify_files(const fs::path& folder, const Seal& seal, const SealOptions& options) {
  std::vector<Finding> findings;
  std::vector<SealedFile> files, wanted;
  core::confine_reads(folder.string());
  for (const SealedFile& file : seal.files) {
    std::error_code error;
    const auto size = fs::file_size(folder / file.name, error);
    if (error) {
      findings.push_back({file.name, "", -1, -1,
                          cat("it was sealed and is missing", tensors_in_text(seal, file.name),
                              "; copy it back, or seal the folder again without it")});
    } else if (static_cast<int64_t>(size) != file.bytes) {
      findings.push_back({file.name, "", -1, -1, cat("it has ", size, " bytes, but the seal says ", file.bytes)});
    } else {
      wanted.push_back(file);
      files.push_back({file.name, file.bytes, ""});
    }
  }
  sum_files(folder, files, options);
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].sha256 == wanted[i].sha256) continue;
    findings.push_back({files[i].name, "", -1, -1, "its SHA-256 differs from the sealed one: it was changed"});
  }
  return findings;
}

VerifyReport verify_source(Source& source, const fs::path& folder, const Seal* seal, const SealOptions& options) {
  VerifyReport report;
  report.path = folder;
  report.iteration = source.info().iteration;
  TensorHashes seen = HashPass(source, folder, options).run(true);
  report.tensors = static_cast<int64_t>(seen.tensors.size());
  report.bytes = seen.bytes;
  report.findings = std::move(seen.findings);
  if (seal != nullptr) {
    std::map<std::pair<std::string, core::TensorRole>, size_t> index;
    std::set<core::TensorRole> roles;
    for (size_t t = 0; t < seen.tensors.size(); ++t) {
      index[{seen.tensors[t].key, seen.tensors[t].role}] = t;
      roles.insert(seen.tensors[t].role);
    }
    const auto name = [](const SealedTensor& tensor) {
      return tensor.role == core::TensorRole::kParam ? tensor.key
                                                     : cat(tensor.key, " (", core::role_name(tensor.role), ")");
    };
    std::set<core::TensorRole> absent;
    for (const SealedTensor& sealed : seal->tensors) {
      const auto found = index.find({sealed.key, sealed.role});
      if (found == index.end()) {
        const bool is_optimizer = core::is_optimizer_role(sealed.role);
        if (is_optimizer && !roles.contains(sealed.role)) {
          absent.insert(sealed.role);
        } else if (!options.partial) {
          report.findings.push_back({"", name(sealed), -1, -1, "it was sealed, but is missing"});
        }
        continue;
      }
      const size_t t = found->second;
      const SealedTensor& tensor = seen.tensors[t];
      index.erase(found);
      if (seen.damaged[t] || tensor.logical_xxh3 == sealed.logical_xxh3) continue;
      if (tensor.shape != sealed.shape || tensor.dtype != sealed.dtype) {
        report.findings.push_back({"", name(sealed), -1, -1,
                                   cat("it is ", core::dtype_name(tensor.dtype), tensor.shape, ", but the seal says ",
                                       core::dtype_name(sealed.dtype), sealed.shape)});
        continue;
      }
      std::string place;  // the pieces that are stored under the same place with another hash
      for (const auto& [stored, hash] : tensor.places) {
        const auto same = std::find_if(sealed.places.begin(), sealed.places.end(),
                                       [&, &where = stored](const auto& other) { return other.first == where; });
        if (same != sealed.places.end() && same->second != hash) place += cat(place.empty() ? "" : ", ", stored);
      }
      report.findings.push_back({place, name(sealed), -1, -1,
                                 cat("its values hash to ", core::hex16(tensor.logical_xxh3), ", but the seal says ",
                                     core::hex16(sealed.logical_xxh3))});
    }
    if (options.partial) index.clear();
    for (const auto& [key, t] : index) {
      report.findings.push_back({"", name(seen.tensors[t]), -1, -1, "it exists, but was not sealed"});
    }
    for (const core::TensorRole role : absent) {
      report.notes.push_back(cat("the seal has tensors of role ", core::role_name(role), ", the checkpoint has none"));
    }
  }
  std::sort(report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
    return std::tie(a.file, a.begin, a.tensor, a.text) < std::tie(b.file, b.begin, b.tensor, b.text);
  });
  return report;
}

}  // namespace ms::ckpt

// Damaged and hostile checkpoints: the error names the place, nothing crashes, and a wrong value is never loaded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "ckpt/commit.h"
#include "ckpt/detail/rank_file.h"
#include "ckpt/diff.h"
#include "ckpt/manifest.h"
#include "ckpt/shard_list.h"
#include "ckpt/verify.h"
#include "core/io/file.h"
#include "core/io/hdf5.h"
#include "core/io/json.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using nlohmann::json;

using ms::test::read_file;
using ms::test::write_file;

class Hostile : public ::testing::Test {
 protected:
  Hostile() : config_(small_model(17, true)) {
    config_.num_layers = 1;
    path_ = write_checkpoint(folder_.path(), {2, 1, 1, false}, config_, roles_);
    manifest_text_ = read_file(path_ / kManifestName);
    rank_text_ = read_file(path_ / "rank_00000.h5");
  }

  std::vector<Finding> findings() { return verify_generation(path_, {}).findings; }

  // Loads everything; true if that succeeded. It checks that the values are right.
  bool loads() {
    try {
      const auto source = open_native(path_);
      expect_loads(*source, {1, 1, 1, false}, config_, roles_);
      return true;
    } catch (const core::Error& e) {
      EXPECT_EQ(core::exit_code(e.code()), 3) << e.what();
      return false;
    }
  }

  // Edits the manifest's JSON and recomputes its self-hash.
  void edit_manifest(const std::function<void(json&)>& edit) {
    json document = json::parse(manifest_text_);
    edit(document);
    document["self_xxh3"] = std::string(16, '0');
    std::string text = document.dump();
    document["self_xxh3"] = core::hex16(manifest_self_hash(text, "test"));
    write_file(path_ / kManifestName, document.dump());
  }

  TemporaryFolder folder_;
  core::TransformerConfig config_;
  std::vector<RoleSpec> roles_ = {{core::TensorRole::kParam, core::DType::kBf16},
                                  {core::TensorRole::kMaster, core::DType::kFp32}};
  fs::path path_;
  std::string manifest_text_, rank_text_;
  std::mt19937_64 random_{20260812};
};

TEST_F(Hostile, ValidCheckpointHasNoFindings) {
  EXPECT_TRUE(findings().empty());
  EXPECT_TRUE(loads());
}

TEST_F(Hostile, EveryFlippedByteOfTheManifestIsFound) {
  for (size_t i = 0; i < manifest_text_.size(); i += 1 + random_() % 5) {
    std::string text = manifest_text_;
    text[i] = static_cast<char>(text[i] ^ (1 << (random_() % 8)));
    write_file(path_ / kManifestName, text);
    const auto thrown = thrown_by([&] { read_manifest(path_); });
    ASSERT_EQ(thrown.code, core::ErrorCode::kCorruptData) << "byte " << i << ": " << thrown.text;
    ASSERT_NE(thrown.text.find("manifest.json"), std::string::npos) << thrown.text;
  }
  EXPECT_FALSE(findings().empty());
}

TEST_F(Hostile, EveryTruncationIsFound) {
  for (size_t size = 0; size < manifest_text_.size(); size += 1 + random_() % 13) {
    write_file(path_ / kManifestName, manifest_text_.substr(0, size));
    ASSERT_EQ(thrown_by([&] { read_manifest(path_); }).code, core::ErrorCode::kCorruptData) << size;
  }
  write_file(path_ / kManifestName, manifest_text_);
  for (size_t size = 0; size < rank_text_.size(); size += 1 + random_() % 997) {
    write_file(path_ / "rank_00000.h5", rank_text_.substr(0, size));
    ASSERT_FALSE(findings().empty()) << size;
    ASSERT_FALSE(loads());
  }
}

TEST_F(Hostile, FlippedBytesOfARankFileAreNamed) {
  const Manifest manifest = read_manifest(path_);
  int in_tensors = 0;
  for (size_t i = 0; i < rank_text_.size(); i += 1 + random_() % 151) {
    std::string text = rank_text_;
    text[i] = static_cast<char>(text[i] ^ (1 << (random_() % 8)));
    write_file(path_ / "rank_00000.h5", text);
    const auto found = findings();
    ASSERT_EQ(found.size(), 1u) << "byte " << i;
    EXPECT_EQ(found.front().file, "rank_00000.h5");
    std::string owner;
    for (size_t box = 0; box < manifest.boxes.size(); ++box) {
      const int64_t at = manifest.places[box].at, end = at + manifest.boxes.size_bytes(box);
      if (manifest.places[box].file == 0 && static_cast<int64_t>(i) >= at && static_cast<int64_t>(i) < end) {
        owner = manifest.boxes.key(manifest.boxes.tensor_of(box));
      }
    }
    if (owner.empty()) {
      EXPECT_TRUE(found.front().tensor.empty());
      if (i % 16 == 0) {
        EXPECT_TRUE(loads());  // no value depends on the HDF5 structure
      }
    } else {
      ++in_tensors;
      EXPECT_EQ(found.front().tensor.rfind(owner, 0), 0u) << found.front().tensor << " not " << owner;
      EXPECT_LE(found.front().begin, static_cast<int64_t>(i));
      EXPECT_GT(found.front().end, static_cast<int64_t>(i));
      if (i % 8 == 0) {
        EXPECT_FALSE(loads());
      }
    }
  }
  EXPECT_GT(in_tensors, 20);
}

TEST_F(Hostile, MissingAndUnexpectedFilesAreReported) {
  fs::rename(path_ / "rank_00001.h5", path_ / "other.h5");
  EXPECT_FALSE(findings().empty());
  EXPECT_FALSE(loads());
  fs::rename(path_ / "other.h5", path_ / "rank_00001.h5");
  write_file(path_ / "notes.txt", "mine");
  const VerifyReport report = verify_generation(path_, {});
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.notes.size(), 1u);
}

// Attacks with a valid self-hash: refused by the parser, or found by verify and refused by the load.
TEST_F(Hostile, ManifestAttacksAreRefusedOrFound) {
  const std::vector<std::pair<const char*, std::function<void(json&)>>> attacks = {
      {"path upwards", [](json& d) { d["files"][0]["name"] = "../rank_00000.h5"; }},
      {"absolute path", [](json& d) { d["files"][0]["name"] = "/etc/passwd"; }},
      {"dot name", [](json& d) { d["files"][0]["name"] = ".."; }},
      {"same file twice", [](json& d) { d["files"][1]["name"] = "rank_00000.h5"; }},
      {"negative size", [](json& d) { d["files"][0]["bytes"] = -1; }},
      {"size of another", [](json& d) { d["files"][0]["bytes"] = 1 << 30; }},
      {"no such file index", [](json& d) { d["tensors"][0]["boxes"][0]["file"] = 7; }},
      {"negative file index", [](json& d) { d["tensors"][0]["boxes"][0]["file"] = -1; }},
      {"offset out of the file", [](json& d) { d["tensors"][0]["boxes"][0]["at"] = int64_t{1} << 62; }},
      {"negative offset", [](json& d) { d["tensors"][0]["boxes"][0]["at"] = -64; }},
      {"box out of the tensor", [](json& d) { d["tensors"][0]["boxes"][0]["offset"][0] = 1; }},
      {"negative box", [](json& d) { d["tensors"][0]["boxes"][0]["offset"][0] = -1; }},
      {"box without elements", [](json& d) { d["tensors"][0]["boxes"][0]["shape"][0] = 0; }},
      {"axes", [](json& d) { d["tensors"][0]["boxes"][0]["shape"].push_back(1); }},
      {"huge shape",
       [](json& d) {
         d["tensors"][0]["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
       }},
      {"shape above 2^63", [](json& d) { d["tensors"][0]["shape"][0] = 18446744073709551615u; }},
      {"shape as text", [](json& d) { d["tensors"][0]["shape"][0] = "17"; }},
      {"hole", [](json& d) { d["tensors"][1]["boxes"].erase(0); }},
      {"no boxes", [](json& d) { d["tensors"][2]["boxes"] = json::array(); }},
      {"overlap", [](json& d) { d["tensors"][1]["boxes"].push_back(d["tensors"][1]["boxes"][0]); }},
      {"tensor twice", [](json& d) { d["tensors"].push_back(d["tensors"][0]); }},
      {"unknown dtype", [](json& d) { d["tensors"][0]["dtype"] = "fp7"; }},
      {"unknown role", [](json& d) { d["tensors"][0]["role"] = "admin"; }},
      {"one chunk hash too many", [](json& d) { d["tensors"][0]["boxes"][0]["xxh3"] = std::string(32, '0'); }},
      {"chunk hash of nothing", [](json& d) { d["tensors"][0]["boxes"][0]["xxh3"] = std::string(16, 'g'); }},
      {"other chunk hash", [](json& d) { d["tensors"][0]["boxes"][0]["xxh3"] = std::string(16, '0'); }},
      {"wrong place in the file",
       [](json& d) { d["tensors"][1]["boxes"][0]["at"] = d["tensors"][2]["boxes"][0]["at"]; }},
      {"tensors as object", [](json& d) { d["tensors"] = json::object(); }},
      {"no tensors", [](json& d) { d.erase("tensors"); }},
      {"model as list", [](json& d) { d["model"] = json::array(); }},
      {"layers as text", [](json& d) { d["model"]["num_layers"] = "two"; }},
      {"iteration as text", [](json& d) { d["iteration"] = "100"; }},
  };
  for (const auto& [name, attack] : attacks) {
    SCOPED_TRACE(name);
    edit_manifest(attack);
    EXPECT_FALSE(findings().empty());
    EXPECT_FALSE(loads());
  }
}

// The same checkpoint with its table in a separate file.
TEST_F(Hostile, PackedTableIsEquivalentAndProtected) {
  Manifest manifest = read_manifest(path_);
  const auto wanted = std::vector<core::ShardedTensor>(manifest.boxes.begin(), manifest.boxes.end());
  write_manifest(path_, manifest, 0);
  const Manifest packed = read_manifest(path_);
  EXPECT_EQ(packed.table_file, 2);
  EXPECT_EQ(std::vector<core::ShardedTensor>(packed.boxes.begin(), packed.boxes.end()), wanted);
  EXPECT_TRUE(findings().empty());
  EXPECT_TRUE(loads());
  const std::string document = read_file(path_ / kManifestName), table = read_file(path_ / kTableName);
  write_manifest(path_, manifest, 0);
  EXPECT_EQ(read_file(path_ / kManifestName), document);  // same bytes
  for (size_t bit = 0; bit < 8 * table.size(); bit += 1 + random_() % 61) {
    std::string flipped = table;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    write_file(path_ / kTableName, flipped);
    const auto thrown = thrown_by([&] { read_manifest(path_); });
    ASSERT_EQ(thrown.code, core::ErrorCode::kCorruptData) << "bit " << bit << ": " << thrown.text;
    ASSERT_NE(thrown.text.find(kTableName), std::string::npos) << thrown.text;
  }
  for (size_t size = 0; size < table.size(); size += 1 + random_() % 61) {
    write_file(path_ / kTableName, table.substr(0, size));
    ASSERT_EQ(thrown_by([&] { read_manifest(path_); }).code, core::ErrorCode::kCorruptData) << size;
  }
  write_file(path_ / kTableName, table);
  manifest_text_ = document;
  const std::vector<std::pair<const char*, std::function<void(json&)>>> attacks = {
      {"another count", [](json& d) { d["table"]["boxes"] = d["table"]["boxes"].get<int>() + 1; }},
      {"absurd count", [](json& d) { d["table"]["tensors"] = int64_t{1} << 61; }},
      {"another file", [](json& d) { d["table"]["file"] = 0; }},
      {"no such file", [](json& d) { d["table"]["file"] = 3; }},
      {"a list as well", [](json& d) { d["tensors"] = json::array(); }},
  };
  for (const auto& [name, attack] : attacks) {
    SCOPED_TRACE(name);
    edit_manifest(attack);
    EXPECT_FALSE(findings().empty());
    EXPECT_FALSE(loads());
  }
}

// FORMAT.md, section 3: at most 8 axes, in the document and in the packed table.
TEST_F(Hostile, NineAxesAreRefusedInOneLine) {
  const auto refused = [&](const char* file) {
    const auto thrown = thrown_by([&] { read_manifest(path_); });
    EXPECT_EQ(core::exit_code(thrown.code), 3);
    EXPECT_NE(thrown.text.find(file), std::string::npos) << thrown.text;
    EXPECT_NE(thrown.text.find(": 9 axes; a tensor has at most 8"), std::string::npos) << thrown.text;
    EXPECT_EQ(thrown.text.find('\n'), std::string::npos) << thrown.text;
  };
  Manifest manifest = read_manifest(path_);
  for (const char* list : {"offset", "shape"}) {
    edit_manifest([&](json& d) { d["tensors"][0]["boxes"][0][list] = std::vector<int>(9, 1); });
    refused(kManifestName);
  }
  edit_manifest([](json& d) { d["tensors"][0]["shape"] = std::vector<int>(9, 1); });
  refused(kManifestName);
  write_manifest(path_, manifest, 0);
  std::string table = read_file(path_ / kTableName);
  constexpr size_t kAxes = 32 + 16;  // after the file's header, within the first tensor's
  ASSERT_LE(table[kAxes], 8);
  table[kAxes] = 9;
  write_file(path_ / kTableName, table);
  refused(kTableName);
}

TEST_F(Hostile, NestingIsBounded) {
  write_file(path_ / kManifestName, std::string(1 << 20, '['));
  EXPECT_EQ(thrown_by([&] { read_manifest(path_); }).code, core::ErrorCode::kCorruptData);
}

TEST_F(Hostile, NewerFormatIsUnsupportedAndNotSkipped) {
  edit_manifest([](json& d) { d["format_version"] = 2; });
  EXPECT_EQ(thrown_by([&] { read_manifest(path_); }).code, core::ErrorCode::kUnsupported);
  EXPECT_EQ(thrown_by([&] { find_latest(folder_.path()); }).code, core::ErrorCode::kUnsupported);
}

// HDF5 attributes with wrong values, while the hashes of all bytes are right: verify compares them with the manifest.
TEST_F(Hostile, Hdf5ThatContradictsTheManifestIsFound) {
  {
    core::H5File h5 = core::H5File::open_write((path_ / "rank_00000.h5").string());
    const auto hashes = h5.attribute_values("/packed/master", "chunk_xxh3_stored");
    ASSERT_TRUE(hashes.has_value());
    auto lies = *hashes;
    lies[0] ^= 1;
    h5.overwrite_attribute("/packed/master", "chunk_xxh3_stored", lies);
    h5.close();
  }
  auto found = findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].text.find("HDF5 structure"), std::string::npos);
  const Manifest manifest = read_manifest(path_);
  std::vector<BoxRecord> boxes;
  for (size_t box = 0; box < manifest.boxes.size(); ++box) {
    if (manifest.places[box].file != 0) continue;
    const auto chunks = manifest.chunks_of(box);
    boxes.push_back(
        {manifest.boxes[box], manifest.dataset_of(box), manifest.places[box].at, {chunks.begin(), chunks.end()}});
  }
  const uint64_t right = hash_structure(core::File::open_read((path_ / "rank_00000.h5").string()), boxes);
  edit_manifest([&](json& d) { d["files"][0]["xxh3"] = core::hex16(right); });
  found = findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].text.find("differ in the chunk hash"), std::string::npos) << found[0].text;
}

TEST_F(Hostile, RecoveryFallsBackWithNotes) {
  const auto newer = write_checkpoint(folder_.path(), {1, 1, 1, false}, config_, roles_, 200);
  EXPECT_EQ(find_latest(folder_.path())->generation.iteration, 200);
  EXPECT_TRUE(find_latest(folder_.path())->notes.empty());
  fs::resize_file(newer / "rank_00000.h5", 100);
  auto latest = find_latest(folder_.path());
  EXPECT_EQ(latest->generation.iteration, 100);
  EXPECT_EQ(latest->notes.size(), 2u);  // a skipped generation, and the pointer that names it
  write_file(folder_.path() / kPointerName, "nonsense");
  EXPECT_EQ(find_latest(folder_.path())->generation.iteration, 100);
  fs::create_directory(folder_.path() / "iter_0000300.tmp-host-1-2");
  EXPECT_EQ(find_latest(folder_.path())->generation.iteration, 100);
  fs::remove(path_ / kManifestName);
  EXPECT_EQ(thrown_by([&] { find_latest(folder_.path()); }).code, core::ErrorCode::kCorruptData);
  TemporaryFolder empty;
  EXPECT_FALSE(find_latest(empty.path()).has_value());
  EXPECT_FALSE(find_latest(empty / "absent").has_value());
}

TEST_F(Hostile, ModelThatDoesNotMatchTheTensorsIsAFinding) {
  config_.num_layers = 2;
  path_ = write_checkpoint(folder_.path(), {2, 1, 1, false}, config_, roles_, 200);
  manifest_text_ = read_file(path_ / kManifestName);
  const auto texts = [&](const char* key, int64_t value) {
    edit_manifest([&](json& d) { d["model"][key] = value; });
    VerifyOptions options;
    options.fast = true;
    std::string all;
    for (const Finding& finding : verify_generation(path_, options).findings) all += finding_text(finding) + "\n";
    return all;
  };
  EXPECT_EQ(texts("num_layers", 2), "");
  EXPECT_NE(texts("num_layers", 7)
                .find("decoder.layers.2.self_attention.linear_proj.weight: the model has it, but it is "
                      "not stored"),
            std::string::npos)
      << texts("num_layers", 7);
  EXPECT_NE(texts("num_layers", 7).find("further parameters of the model are not stored"), std::string::npos);
  EXPECT_NE(texts("num_layers", 1).find("it is of layer 1, but the model has 1 layers"), std::string::npos);
  EXPECT_NE(texts("num_layers", int64_t{1} << 40).find("layers and 0 experts, but only"), std::string::npos);
  EXPECT_NE(texts("ffn_hidden_size", 48).find("mlp.linear_fc1.weight: it has shape"), std::string::npos);
}

TEST_F(Hostile, DiffNamesDifferences) {
  TemporaryFolder other;
  const auto same = open_native(write_checkpoint(other.path(), {1, 1, 1, false}, config_, roles_));
  const auto here = open_native(path_);
  EXPECT_TRUE(diff_checkpoints(*here, *same).differences.empty());
  MemorySource memory(same->shards(), same->info());  // has no stored hashes: they are computed
  EXPECT_TRUE(diff_checkpoints(*here, memory).differences.empty());
  std::vector<core::ShardedTensor> fewer(same->shards().begin(), same->shards().end());
  fewer.pop_back();
  MemorySource partial(fewer, same->info());
  ASSERT_EQ(diff_checkpoints(*here, partial).differences.size(), 1u);
  EXPECT_EQ(diff_checkpoints(*here, partial).differences[0].text, "only in the first");
  edit_manifest([](json& d) { d["tensors"][3]["logical_xxh3"] = std::string(16, '1'); });
  const auto changed = open_native(path_);
  EXPECT_TRUE(diff_checkpoints(*changed, *same).differences.empty());  // verify reports that
  const auto by_hash = diff_checkpoints(*changed, *same, {.by_recorded_hashes = true}).differences;
  ASSERT_EQ(by_hash.size(), 1u);
  EXPECT_EQ(by_hash[0].text, "the recorded logical hashes differ, but no value does");
}

}  // namespace
}  // namespace ms::ckpt

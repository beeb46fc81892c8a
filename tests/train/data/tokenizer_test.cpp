#include "train/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/train/data/temp_dir.h"
#include "train/data/detail/bpe.h"
#include "train/data/detail/unicode.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using testing::HasSubstr;
using tests::TempDir;
using tests::write_bytes;

using Ids = std::vector<int32_t>;

TEST(ByteLevelTokenizer, ABytesIsItsOwnId) {
  const auto tokenizer = make_tokenizer("ByteLevelTokenizer", "");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  Ids ids = tokenizer->encode(all);
  ASSERT_EQ(ids.size(), 256);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<size_t>(byte)], byte);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->eod(), 256);
  EXPECT_EQ(tokenizer->decode(Ids{104, 105, 256}), "hi");
  EXPECT_THROW(tokenizer->decode(Ids{257}), Error);
  EXPECT_THROW(tokenizer->decode(Ids{-1}), Error);
}

TEST(HuggingFaceTokenizer, IdsEqualThoseOfTheLibrary) {
  const json file = json::parse(tests::read_bytes(std::string(MS_TEST_DATA) + "/train/tokenizer_goldens.json"));
  for (const json& golden : file["goldens"]) {
    const TempDir dir;
    write_bytes(dir / "tokenizer.json", golden["tokenizer"].dump());
    const auto tokenizer = make_tokenizer("HuggingFaceTokenizer", dir.path());
    const auto fork = tokenizer->fork();
    EXPECT_EQ(tokenizer->description(), make_tokenizer("PretrainedFromHF", dir / "tokenizer.json")->description());
    for (size_t i = 0; i < file["texts"].size(); ++i) {
      const auto text = file["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), golden["ids"][i].get<Ids>()) << golden["name"] << ": " << text;
      EXPECT_EQ(fork->encode(text), golden["ids"][i].get<Ids>()) << "fork";
    }
  }
}

// A vocabulary of the 256 bytes (id = byte), some merges, <|endoftext|> at 300 and one added token.
json small_tokenizer() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    detail::append_utf8(detail::char_of_byte(static_cast<uint8_t>(byte)), name);
    vocab[name] = byte;
  }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  vocab["bc"] = 258;
  vocab["aa"] = 259;
  const json merges = {"a b", "ab c", "b c", "a a"};
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"added_tokens",
           {{{"id", 300}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}},
            {{"id", 301}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}}}}};
}

class SmallTokenizer : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> make(const json& tokenizer) const {
    write_bytes(dir_ / "tokenizer.json", tokenizer.dump());
    return make_tokenizer("HuggingFaceTokenizer", dir_.path());
  }
  const TempDir dir_;
};

TEST_F(SmallTokenizer, MergesByRankThenLeftmost) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{257}));
  EXPECT_EQ(tokenizer->encode("bcab"), (Ids{258, 256}));
  EXPECT_EQ(tokenizer->encode("aaaaa"), (Ids{259, 259, 'a'}));
  EXPECT_EQ(tokenizer->encode("aab"), (Ids{'a', 256}));  // "a b" came before "a a"
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST_F(SmallTokenizer, MergesGivenAsPairs) {
  json pairs = small_tokenizer();
  pairs["model"]["merges"] = json::parse(R"([["a", "b"], ["ab", "c"], ["b", "c"], ["a", "a"]])");
  EXPECT_EQ(make(pairs)->encode("abc aab"), make(small_tokenizer())->encode("abc aab"));
}

TEST_F(SmallTokenizer, LongWordsTakeAboutLinearTime) {
  const std::string word(2'000'000, 'a');
  const Ids ids = make(small_tokenizer())->encode(word);
  EXPECT_EQ(ids, Ids(1'000'000, 259));
}

TEST_F(SmallTokenizer, AddedTokensAreFoundFirstLongestWins) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("a<|endoftext|><|end|>b"), (Ids{'a', 300, 301, 'b'}));
  EXPECT_EQ(tokenizer->encode("<|en"), (Ids{'<', '|', 'e', 'n'}));
  EXPECT_EQ(tokenizer->vocab_size(), 302);
  EXPECT_EQ(tokenizer->eod(), 300);
  EXPECT_EQ(tokenizer->decode(Ids{257, 301, 300, 'x'}), "abc<|end|>x");
  EXPECT_THROW(tokenizer->decode(Ids{302}), Error);
}

TEST_F(SmallTokenizer, EodComesFromTheConfigBesideIt) {
  write_bytes(dir_ / "tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 301);
  write_bytes(dir_ / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 301);
  write_bytes(dir_ / "tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 300);
  json none = small_tokenizer();
  none["added_tokens"] = json::array();
  EXPECT_EQ(make(none)->eod(), std::nullopt);
}

TEST_F(SmallTokenizer, MalformedUtf8BecomesTheReplacementCharacter) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("a\xFFz"), (Ids{'a', 0xEF, 0xBF, 0xBD, 'z'}));
}

TEST_F(SmallTokenizer, WhatIsNotBuiltInIsRefusedByName) {
  struct Case {
    ErrorCode code;
    const char* says;
    std::function<void(json&)> change;
  };
  const Case cases[] = {
      {ErrorCode::kUnsupported, "WordPiece", [](json& t) { t["model"]["type"] = "WordPiece"; }},
      {ErrorCode::kUnsupported, "byte_fallback", [](json& t) { t["model"]["byte_fallback"] = true; }},
      {ErrorCode::kUnsupported, "dropout", [](json& t) { t["model"]["dropout"] = 0.1; }},
      {ErrorCode::kUnsupported, "Lowercase",
       [](json& t) {
         t["normalizer"] = {{"type", "Lowercase"}};
       }},
      {ErrorCode::kUnsupported, "Metaspace",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {ErrorCode::kUnsupported, "[a-z]+",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers",
                                {{{"type", "Split"}, {"pattern", {{"Regex", "[a-z]+"}}}, {"behavior", "Isolated"}},
                                 {{"type", "ByteLevel"}, {"use_regex", false}}}}};
       }},
      {ErrorCode::kUnsupported, "BertProcessing",
       [](json& t) {
         t["post_processor"] = {{"type", "BertProcessing"}};
       }},
      {ErrorCode::kUnsupported, "single_word", [](json& t) { t["added_tokens"][1]["single_word"] = true; }},
      {ErrorCode::kUnsupported, "byte 97", [](json& t) { t["model"]["vocab"].erase("a"); }},
      {ErrorCode::kCorruptData, "number 4", [](json& t) { t["model"]["merges"].push_back("x y"); }},
      {ErrorCode::kCorruptData, "number 4", [](json& t) { t["model"]["merges"].push_back("nospace"); }},
      {ErrorCode::kCorruptData, "tokenizer.json", [](json& t) { t["model"].erase("merges"); }},
      {ErrorCode::kCorruptData, "tokenizer.json", [](json& t) { t.erase("model"); }},
      {ErrorCode::kCorruptData, "tokenizer.json", [](json& t) { t["model"]["merges"] = 7; }},
      {ErrorCode::kCorruptData, "\"ab\" is -1", [](json& t) { t["model"]["vocab"]["ab"] = -1; }},
      {ErrorCode::kCorruptData, "<|end|>", [](json& t) { t["added_tokens"][1]["id"] = int64_t{1} << 40; }},
  };
  for (const Case& wrong : cases) {
    json tokenizer = small_tokenizer();
    wrong.change(tokenizer);
    try {
      make(tokenizer);
      ADD_FAILURE() << "accepted: " << wrong.says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), wrong.code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(wrong.says));
      EXPECT_THAT(e.what(), HasSubstr("tokenizer.json"));
    }
  }
}

TEST_F(SmallTokenizer, BrokenFiles) {
  const auto code = [&](const std::string& bytes) {
    write_bytes(dir_ / "tokenizer.json", bytes);
    try {
      make_tokenizer("HuggingFaceTokenizer", dir_.path());
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  const std::string good = small_tokenizer().dump();
  for (size_t size = 0; size < good.size(); size += 97) EXPECT_EQ(code(good.substr(0, size)), ErrorCode::kCorruptData);
  EXPECT_EQ(code("[]"), ErrorCode::kCorruptData);
}

TEST(MakeTokenizer, FlagsThatContradict) {
  const auto code = [](const char* type, const char* model) {
    try {
      make_tokenizer(type, model);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code("ByteLevelTokenizer", "x"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code("HuggingFaceTokenizer", ""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code("BertWordPieceLowerCase", ""), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code("HuggingFaceTokenizer", "/nowhere/tokenizer.json"), ErrorCode::kNotFound);
}

TEST(Unicode, FindsAndReplacesMalformedUtf8) {
  const auto replace = [](std::string_view text) {
    int64_t count = 0;
    std::string out = detail::replace_malformed_utf8(text, count);
    return out + " " + std::to_string(count);
  };
  EXPECT_EQ(replace("plain \xC3\xA9 \xF0\x9F\x99\x82"), "plain \xC3\xA9 \xF0\x9F\x99\x82 0");
  EXPECT_EQ(replace("\x80"), "\xEF\xBF\xBD 1");
  EXPECT_EQ(replace("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD 2");                  // overlong
  EXPECT_EQ(replace("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD 3");  // a surrogate
  EXPECT_EQ(replace("\xE2\x82"), "\xEF\xBF\xBD 1");                              // cut
  EXPECT_EQ(replace("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD 4");
}

TEST(Unicode, NormalizesToFormC) {
  const auto nfc = [](std::string text) {
    std::string out;
    return detail::normalize_nfc(text, out) ? out : text;
  };
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("\u212b"), "\u00c5");                // a singleton
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // canonical order
  EXPECT_EQ(nfc("\u1e9b\u0323"), "\u1e9b\u0323");    // UAX 15, figure 5
  EXPECT_EQ(nfc("a\u0323\u0302"), "\u1ead");         // composes twice
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");    // Hangul
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");          // excluded from composition
  EXPECT_EQ(nfc("\u0301e\u0301"), "\u0301\u00e9");   // begins with a mark
}

}  // namespace
}  // namespace ms::train

#include "train/data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "train/data/detail/bpe.h"
#include "train/data/detail/unicode.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using test::TemporaryFolder;
using test::write_file;
using testing::HasSubstr;

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> hugging_face(const std::string& path) {
  return make_tokenizer({.tokenizer_type = "HuggingFaceTokenizer", .tokenizer_model = path});
}

TEST(ByteLevelTokenizer, AByteIsItsOwnId) {
  const auto tokenizer = make_tokenizer({});
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

TEST(HuggingFaceTokenizer, IdsEqualTheLibrarys) {
  const json file = json::parse(test::read_file(std::string(MS_TEST_DATA) + "/train/tokenizer_goldens.json"));
  for (const json& golden : file["goldens"]) {
    const TemporaryFolder dir;
    write_file(dir / "tokenizer.json", golden["tokenizer"].dump());
    const auto tokenizer = hugging_face(dir.path());
    const auto fork = tokenizer->fork();
    EXPECT_EQ(tokenizer->description(),
              make_tokenizer({.tokenizer_type = "PretrainedFromHF", .tokenizer_model = dir / "tokenizer.json"})
                  ->description());
    for (size_t i = 0; i < file["texts"].size(); ++i) {
      const auto text = file["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), golden["ids"][i].get<Ids>()) << golden["name"] << ": " << text;
      EXPECT_EQ(fork->encode(text), golden["ids"][i].get<Ids>()) << "fork";
      const json& decoded = golden["decoded"][i];  // null if the library's own decoder breaks an added token
      if (!decoded.is_null()) {
        EXPECT_EQ(tokenizer->decode(golden["ids"][i].get<Ids>()), decoded) << golden["name"];
      }
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
    write_file(dir_ / "tokenizer.json", tokenizer.dump());
    return hugging_face(dir_.path());
  }
  const TemporaryFolder dir_;
};

TEST_F(SmallTokenizer, MergesByRankThenLeftmost) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{257}));
  EXPECT_EQ(tokenizer->encode("bcab"), (Ids{258, 256}));
  EXPECT_EQ(tokenizer->encode("aaaaa"), (Ids{259, 259, 'a'}));
  EXPECT_EQ(tokenizer->encode("aab"), (Ids{'a', 256}));  // "a b" came before "a a"
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST_F(SmallTokenizer, MergesMayBePairs) {
  json pairs = small_tokenizer();
  pairs["model"]["merges"] = json::parse(R"([["a", "b"], ["ab", "c"], ["b", "c"], ["a", "a"]])");
  EXPECT_EQ(make(pairs)->encode("abc aab"), make(small_tokenizer())->encode("abc aab"));
}

TEST_F(SmallTokenizer, LongWordsTakeAboutLinearTime) {
  const std::string word(2'000'000, 'a');
  const Ids ids = make(small_tokenizer())->encode(word);
  EXPECT_EQ(ids, Ids(1'000'000, 259));
}

TEST_F(SmallTokenizer, AddedTokensMatchFirstAndLongestWins) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("a<|endoftext|><|end|>b"), (Ids{'a', 300, 301, 'b'}));
  EXPECT_EQ(tokenizer->encode("<|en"), (Ids{'<', '|', 'e', 'n'}));
  EXPECT_EQ(tokenizer->vocab_size(), 302);
  EXPECT_EQ(tokenizer->eod(), 300);
  EXPECT_EQ(tokenizer->decode(Ids{257, 301, 300, 'x'}), "abc<|end|>x");
  EXPECT_THROW(tokenizer->decode(Ids{302}), Error);
}

TEST_F(SmallTokenizer, EodComesFromTheConfigInItsFolder) {
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 301);
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 301);
  write_file(dir_ / "tokenizer_config.json", R"({"eos_token": null})");
  EXPECT_EQ(make(small_tokenizer())->eod(), 300);
  json none = small_tokenizer();
  none["added_tokens"] = json::array();
  EXPECT_EQ(make(none)->eod(), std::nullopt);
}

TEST_F(SmallTokenizer, WhoNeedsAnEodIsToldWhereToPutOne) {
  json none = small_tokenizer();
  none["added_tokens"] = json::array();
  const auto tokenizer = make(none);
  for (const auto& [type, cure] :
       {std::pair{"HuggingFaceTokenizer", "tokenizer_config.json"}, std::pair{"GPT2BPETokenizer", "<|endoftext|>"},
        std::pair{"Llama2Tokenizer", "eos piece"}}) {
    try {
      require_eod(*tokenizer, {.tokenizer_type = type}, "--append-eod");
      ADD_FAILURE() << type;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      for (const char* part : {"--append-eod needs an end-of-document token", type, cure})
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }
  EXPECT_NO_THROW(require_eod(*make(small_tokenizer()), {}, "--append-eod"));
}

TEST_F(SmallTokenizer, Gpt2VocabularyAndMergesGiveTheSameIds) {
  json vocab = small_tokenizer()["model"]["vocab"];
  vocab["<|endoftext|>"] = 260;
  write_file(dir_ / "vocab.json", vocab.dump());
  write_file(dir_ / "merges.txt", "#version: 0.2\na b\nab c\r\nb c\na a\n");
  const auto load = [&] {
    return make_tokenizer(
        {.tokenizer_type = "GPT2BPETokenizer", .vocab_file = dir_ / "vocab.json", .merge_file = dir_ / "merges.txt"});
  };
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("abc aab"), make(small_tokenizer())->encode("abc aab"));
  EXPECT_EQ(tokenizer->eod(), 260);
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("abc <|endoftext|>")), "abc <|endoftext|>") << "text, as in Megatron";
  const auto refuse = [&](const char* says, const char* merges) {
    write_file(dir_ / "merges.txt", merges);
    try {
      load();
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(says));
      EXPECT_THAT(e.what(), HasSubstr("merges.txt"));
    }
  };
  refuse("#version", "a b\nab c\n");
  refuse("#version", "");
  refuse("number 1", "#version: 0.2\na b\nx y\n");
  refuse("number 0", "#version: 0.2\nab\n");
  refuse("not UTF-8", "#version: 0.2\na \xFF\n");
}

TEST_F(SmallTokenizer, MalformedUtf8BecomesTheReplacementCharacter) {
  const auto tokenizer = make(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("a\xFFz"), (Ids{'a', 0xEF, 0xBF, 0xBD, 'z'}));
}

TEST_F(SmallTokenizer, UnsupportedPartsAreRefusedByName) {
  struct Case {
    ErrorCode code;
    const char* says;
    std::function<void(json&)> change;
  };
  const Case cases[] = {
      {ErrorCode::kUnsupported, "WordPiece", [](json& t) { t["model"]["type"] = "WordPiece"; }},
      {ErrorCode::kUnsupported, "dropout", [](json& t) { t["model"]["dropout"] = 0.1; }},
      {ErrorCode::kUnsupported, "Lowercase",
       [](json& t) {
         t["normalizer"] = {{"type", "Lowercase"}};
       }},
      {ErrorCode::kUnsupported, "Whitespace",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Whitespace"}};
       }},
      {ErrorCode::kUnsupported, "Digits after ByteLevel",
       [](json& t) {
         t["pre_tokenizer"] = {
             {"type", "Sequence"},
             {"pretokenizers", {t["pre_tokenizer"], {{"type", "Digits"}, {"individual_digits", true}}}}};
       }},
      {ErrorCode::kUnsupported, "MergedWithPrevious",
       [](json& t) {
         t["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", true}};
       }},
      {ErrorCode::kUnsupported, "{\"Regex\":\" {2,}\"}",
       [](json& t) {
         t["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
       }},
      {ErrorCode::kUnsupported, "decoder: Fuse",
       [](json& t) {
         t["decoder"] = {{"type", "Fuse"}};
       }},
      {ErrorCode::kUnsupported, "would lose text", [](json& t) { t["pre_tokenizer"] = nullptr; }},
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
      {ErrorCode::kCorruptData, "\"ab\" is 1000000", [](json& t) { t["model"]["vocab"]["ab"] = 1000000; }},
      {ErrorCode::kCorruptData, "<|end|>", [](json& t) { t["added_tokens"][1]["id"] = int64_t{1} << 40; }},
      {ErrorCode::kCorruptData, "\"id\": expected a whole number", [](json& t) { t["added_tokens"][1]["id"] = 1e300; }},
      {ErrorCode::kCorruptData, "\"ab\" is -1", [](json& t) { t["model"]["vocab"]["ab"] = 1e300; }},
      // Each id is within the limit that the previous one would set if gaps counted as tokens.
      {ErrorCode::kCorruptData, "the id of \"far\" is 1000000",
       [](json& t) {
         t["added_tokens"].push_back({{"content", "near"}, {"id", 65000}});
         t["added_tokens"].push_back({{"content", "far"}, {"id", 1000000}});
       }},
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

TEST_F(SmallTokenizer, BrokenFilesAreRefused) {
  const auto code = [&](const std::string& bytes) {
    write_file(dir_ / "tokenizer.json", bytes);
    try {
      hugging_face(dir_.path());
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  const std::string good = small_tokenizer().dump();
  for (size_t size = 0; size < good.size(); size += 97) EXPECT_EQ(code(good.substr(0, size)), ErrorCode::kCorruptData);
  EXPECT_EQ(code("[]"), ErrorCode::kCorruptData);
  const std::string deep = "{\"comment\": " + std::string(100, '[') + std::string(100, ']') + ", " + good.substr(1);
  EXPECT_EQ(code(deep), ErrorCode::kCorruptData);
}

TEST(MakeTokenizer, ContradictoryFlagsAreRefused) {
  const auto refuse = [](ErrorCode code, const char* says, const TokenizerChoice& choice) {
    try {
      make_tokenizer(choice);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  };
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  refuse(kInvalid, "--tokenizer-model", {.tokenizer_model = "x"});
  for (const char* type :
       {"HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    refuse(kInvalid, "needs --tokenizer-model", {.tokenizer_type = type});
    refuse(kInvalid, "--vocab-file", {.tokenizer_type = type, .tokenizer_model = "x", .vocab_file = "v"});
    refuse(ErrorCode::kNotFound, "/nowhere/x", {.tokenizer_type = type, .tokenizer_model = "/nowhere/x"});
  }
  refuse(kInvalid, "BertWordPieceLowerCase", {.tokenizer_type = "BertWordPieceLowerCase"});
  refuse(kInvalid, "--merge-file", {.tokenizer_type = "GPT2BPETokenizer", .vocab_file = "v"});
  refuse(kInvalid, "--vocab-file", {.tokenizer_type = "GPT2BPETokenizer", .merge_file = "m"});
  refuse(kInvalid, "--vocab-size", {.tokenizer_type = "NullTokenizer"});
  refuse(kInvalid, "--vocab-extra-ids", {.vocab_extra_ids = 3});
}

TEST(NullTokenizer, TextsAreIds) {
  const auto tokenizer = make_tokenizer({.tokenizer_type = "NullTokenizer", .vocab_size = 50});
  EXPECT_EQ(tokenizer->encode("7 0  50\n3"), (Ids{7, 0, 50, 3}));
  EXPECT_EQ(tokenizer->encode(" "), Ids{});
  EXPECT_EQ(tokenizer->decode(Ids{7, 50, 3}), "7 3");
  EXPECT_EQ(tokenizer->vocab_size(), 51);
  EXPECT_EQ(tokenizer->eod(), 50);
  for (const char* bad : {"51", "-1", "a", "1a", "1.5", "99999999999"})
    EXPECT_THROW(tokenizer->encode(bad), Error) << bad;
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

TEST(Unicode, NormalizesToNfc) {
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

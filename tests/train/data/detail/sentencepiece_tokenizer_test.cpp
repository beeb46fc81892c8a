#include "train/data/detail/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::train::detail {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using test::TemporaryFolder;
using test::write_file;
using testing::HasSubstr;

using Ids = std::vector<int32_t>;

TEST(SentencePiece, IdsEqualTheLibrarys) {
  const std::string folder = std::string(MS_TEST_DATA) + "/train/sentencepiece";
  const json file = json::parse(test::read_file(folder + "/goldens.json"));
  for (const json& golden : file["goldens"]) {
    const auto model = folder + "/" + golden["model"].get<std::string>();
    const auto plain = make_tokenizer({.tokenizer_type = "GPTSentencePieceTokenizer", .tokenizer_model = model});
    const auto llama2 = make_tokenizer({.tokenizer_type = "Llama2Tokenizer", .tokenizer_model = model});
    EXPECT_EQ(plain->vocab_size(), golden["vocab_size"].get<int64_t>());
    EXPECT_EQ(plain->eod(), golden["eos"].get<int32_t>());
    EXPECT_NE(plain->description(), llama2->description());
    for (size_t i = 0; i < file["texts"].size(); ++i) {
      const auto text = file["texts"][i].get<std::string>();
      Ids ids = golden["ids"][i].get<Ids>();
      EXPECT_EQ(plain->encode(text), ids) << model << ": " << text;
      EXPECT_EQ(plain->decode(ids), golden["decoded"][i].get<std::string>());
      ids.insert(ids.begin(), golden["bos"].get<int32_t>());
      EXPECT_EQ(llama2->fork()->encode(text), ids);
    }
  }
}

TEST(SentencePiece, MegatronsTokensFollowTheModels) {
  const std::string folder = std::string(MS_TEST_DATA) + "/train/sentencepiece";
  TokenizerChoice choice{.tokenizer_type = "SentencePieceTokenizer", .tokenizer_model = folder + "/unigram.model"};
  choice.vocab_extra_ids = 2;
  const auto tokenizer = make_tokenizer(choice);
  choice.tokenizer_type = "GPTSentencePieceTokenizer";
  choice.vocab_extra_ids = 0;
  const auto plain = make_tokenizer(choice);
  const auto first = static_cast<int32_t>(plain->vocab_size());
  // The model contains <s> and </s> but not the others: <CLS> <SEP> <EOD> <MASK> <PAD> are added, then the extra ids.
  EXPECT_EQ(tokenizer->vocab_size(), first + 7);
  EXPECT_EQ(tokenizer->eod(), first + 2);
  Ids ids = plain->encode("the text");
  ids.push_back(first + 5);
  const Ids rest = plain->encode("more");
  ids.insert(ids.end(), rest.begin(), rest.end());
  ids.push_back(first + 6);
  EXPECT_EQ(tokenizer->encode("the text<extra_id_0>more<extra_id_1>"), ids);
  EXPECT_EQ(tokenizer->decode(ids), "the text <extra_id_0> more <extra_id_1> ");
  EXPECT_EQ(tokenizer->encode("</s>"), Ids{*plain->eod()});
}

TEST(SentencePiece, BrokenModelsAreRefused) {
  const TemporaryFolder dir;
  const std::string good = test::read_file(std::string(MS_TEST_DATA) + "/train/sentencepiece/unigram.model");
  const auto load = [&](const std::string& bytes) {
    write_file(dir / "tokenizer.model", bytes);
    return make_tokenizer({.tokenizer_type = "GPTSentencePieceTokenizer", .tokenizer_model = dir.path()});
  };
  const auto text = [&](const std::string& bytes) -> std::string {
    try {
      load(bytes);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorruptData) << e.what();
      return e.what();
    }
    return "accepted";
  };
  EXPECT_GT(load(good)->vocab_size(), 100);
  EXPECT_THAT(text(""), HasSubstr("tokenizer.model"));
  EXPECT_THAT(text("no model at all"), HasSubstr("not a model of SentencePiece"));
  EXPECT_THAT(text(good.substr(0, good.size() / 2)), HasSubstr("tokenizer.model"));
  // The library follows the offsets of this map unchecked.
  const size_t trie = good.find("\x12", good.find("user_defined"));
  ASSERT_NE(trie, std::string::npos);
  std::string wild = good;
  for (size_t at = trie + 100; at < trie + 500; ++at) wild[at] = '\x7B';
  EXPECT_THAT(text(wild), HasSubstr("character map"));
}

TEST(SentencePiece, ExtraIdsAreBounded) {
  const std::string model = std::string(MS_TEST_DATA) + "/train/sentencepiece/unigram.model";
  for (const int64_t number : {int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_EQ(
        test::code_of([&] { SentencePieceTokenizer(SentencePieceTokenizer::Kind::kSentencePiece, model, number); }),
        ErrorCode::kInvalidArgument)
        << number;
  }
}

}  // namespace
}  // namespace ms::train::detail

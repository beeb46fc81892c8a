#include "train/data/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "train/data/statistics.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using testing::HasSubstr;

bool never() { return false; }

std::vector<std::string> documents(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  std::vector<std::string> out;
  for (int64_t d = 0; d < dataset.num_documents(); ++d) {
    std::string text;
    for (int64_t s = dataset.document_index(d); s < dataset.document_index(d + 1); ++s) {
      std::vector<int32_t> ids(static_cast<size_t>(dataset.sequence_length(s)));
      dataset.read(s, 0, ids);
      for (const int32_t id : ids) text += id == 256 ? std::string("$") : std::string(1, static_cast<char>(id));
    }
    out.push_back(text);
  }
  return out;
}

class Preprocess : public testing::Test {
 protected:
  Preprocess() { options_.output_prefix = dir_ / "out"; }
  std::vector<std::string> run() {
    result_ = preprocess(options_, never);
    return documents(result_.sets.at(0).prefix);
  }
  void refuse(ErrorCode code, const std::string& says) {
    try {
      preprocess(options_, never);
      FAIL() << "accepted; expected " << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::StartsWith("out"))) << "left behind";
    }
  }
  const TemporaryFolder dir_;
  PreprocessOptions options_;
  PreprocessResult result_;
};

TEST_F(Preprocess, TextFileIsOneDocument) {
  write_file(dir_ / "b.txt", "second\n");
  write_file(dir_ / "a.dat", "first");
  options_.inputs = {dir_ / "a.dat", dir_ / "b.txt"};
  options_.append_eod = true;
  EXPECT_EQ(run(), (std::vector<std::string>{"first$", "second\n$"}));
  EXPECT_EQ(result_.sets[0].prefix, dir_ / "out_text_document");
  EXPECT_EQ(result_.sets[0].documents, 2);
  EXPECT_EQ(result_.sets[0].tokens, 14);
  EXPECT_EQ(result_.input_bytes, 12);
}

TEST_F(Preprocess, FoldersAreReadInSortedOrder) {
  std::filesystem::create_directories(dir_ / "in/sub");
  write_file(dir_ / "in/z.txt", "z");
  write_file(dir_ / "in/a.txt", "a");
  write_file(dir_ / "in/sub/m.txt", "m");
  write_file(dir_ / "in/skip.bin", "no");
  write_file(dir_ / "in/sub/l.jsonl", "{\"text\": \"line\"}\n");
  std::filesystem::create_symlink("nowhere", dir_ / "in/dangling.txt");
  options_.inputs = {dir_ / "in"};
  EXPECT_EQ(run(), (std::vector<std::string>{"a", "line", "m", "z"}));
  options_.globs = {"sub/*.txt", "a.*"};
  EXPECT_EQ(run(), (std::vector<std::string>{"a", "m"}));
  options_.globs = {"*.none"};
  EXPECT_THROW(run(), Error);
}

TEST_F(Preprocess, JsonLineIsOneDocumentPerKey) {
  write_file(dir_ / "in.jsonl",
             "{\"text\": \"one\", \"b\": \"x\"}\n\n{\"b\": \"y\", \"text\": \"\\u00e9\\n\"}\r\n{\"text\": \"\", "
             "\"b\": \"last\"}");
  options_.inputs = {dir_ / "in.jsonl"};
  options_.json_keys = {"text", "b"};
  options_.append_eod = true;
  EXPECT_EQ(run(), (std::vector<std::string>{"one$", "\xC3\xA9\n$", ""}));
  EXPECT_EQ(documents(dir_ / "out_b_document"), (std::vector<std::string>{"x$", "y$", "last$"}));
  EXPECT_EQ(result_.empty_documents, 1);
}

// As tools/preprocess_data.py: one sequence per sentence, the end of document after the last one.
TEST_F(Preprocess, JsonListIsADocumentOfSentences) {
  write_file(dir_ / "in.jsonl",
             "{\"text\": [\"one\", \"\", \"two!\"]}\n{\"text\": []}\n{\"text\": [\"\"]}\n{\"text\": \"x\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  options_.append_eod = true;
  EXPECT_EQ(run(), (std::vector<std::string>{"onetwo!$", "", "", "x$"}));
  EXPECT_EQ(result_.empty_documents, 2);
  const IndexedDataset dataset(result_.sets[0].prefix);
  ASSERT_EQ(dataset.num_sequences(), 3);
  EXPECT_EQ(dataset.sequence_lengths(0, 3), (std::vector<int32_t>{3, 5, 2}));
  EXPECT_EQ(dataset.document_index(1), 2);
  EXPECT_EQ(dataset.document_index(3), 2);
}

// A tokenizer adds its special tokens to an empty text too: <s> here, followed by the end of document.
TEST_F(Preprocess, EmptyTextGetsSpecialTokens) {
  write_file(dir_ / "in.jsonl", "{\"text\": \"a text\"}\n{\"text\": \"\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  options_.append_eod = true;
  options_.tokenizer.tokenizer_type = "Llama2Tokenizer";
  options_.tokenizer.tokenizer_model = std::string(MS_TEST_DATA) + "/train/sentencepiece/bpe.model";
  const auto tokenizer = make_tokenizer(options_.tokenizer);
  const std::vector<int32_t> around = tokenizer->encode("");
  ASSERT_EQ(around.size(), 1U);
  result_ = preprocess(options_, never);
  const IndexedDataset dataset(result_.sets[0].prefix);
  ASSERT_EQ(dataset.num_sequences(), 2);
  std::vector<int32_t> ids(static_cast<size_t>(dataset.sequence_length(1)));
  dataset.read(1, 0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{around[0], *tokenizer->eod()}));
  EXPECT_EQ(result_.empty_documents, 0);
}

TEST_F(Preprocess, ResultDoesNotDependOnWorkers) {
  std::filesystem::create_directories(dir_ / "in");
  for (int i = 0; i < 400; ++i) {
    write_file(dir_ / ("in/" + std::to_string(i) + ".txt"),
               std::string(static_cast<size_t>(i * i % 20000), 'a' + i % 26));
  }
  std::string lines;
  for (int i = 0; i < 60000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + " of some length\"}\n";
  write_file(dir_ / "in/0.jsonl", lines);  // several batches of lines
  options_.inputs = {dir_ / "in"};
  options_.workers = 1;
  const auto one = run();
  EXPECT_EQ(one.size(), 60400);
  const std::string bin = read_file(dir_ / "out_text_document.bin");
  const std::string idx = read_file(dir_ / "out_text_document.idx");
  for (const int workers : {2, 5, 0}) {
    options_.workers = workers;
    run();
    EXPECT_TRUE(bin == read_file(dir_ / "out_text_document.bin")) << workers;
    EXPECT_TRUE(idx == read_file(dir_ / "out_text_document.idx")) << workers;
  }
}

TEST_F(Preprocess, EntropyEqualsThatOfTheTokens) {
  write_file(dir_ / "a.txt", "aabb");
  options_.inputs = {dir_ / "a.txt"};
  run();
  EXPECT_DOUBLE_EQ(result_.sets[0].unigram_entropy, std::log(2.0));
  const DatasetStatistics seen = measure(IndexedDataset(result_.sets[0].prefix));
  EXPECT_DOUBLE_EQ(seen.unigram_entropy, std::log(2.0));
  EXPECT_EQ(seen.tokens, 4);
  EXPECT_EQ(seen.distinct_tokens, 2);
  EXPECT_EQ(seen.largest_token, 'b');
  EXPECT_EQ(entropy_nats({}), 0.0);
  EXPECT_EQ(entropy_nats(std::vector<int64_t>{5}), 0.0);
}

TEST(Statistics, LengthsGivePercentilesAndHistogram) {
  EXPECT_EQ(measure_lengths({}).longest, 0);
  std::vector<int32_t> lengths;
  for (int32_t length = 100; length > 0; --length) lengths.push_back(length);
  const LengthStatistics seen = measure_lengths(lengths);
  EXPECT_EQ(seen.shortest, 1);
  EXPECT_EQ(seen.longest, 100);
  EXPECT_DOUBLE_EQ(seen.mean, 50.5);
  EXPECT_EQ(seen.percentiles, (std::array<int64_t, 7>{1, 10, 25, 50, 75, 90, 99}));
  EXPECT_EQ(seen.histogram, (std::vector<int64_t>{0, 1, 2, 4, 8, 16, 32, 37}));
  EXPECT_EQ(measure_lengths({0, 0, INT32_MAX}).histogram.size(), 32);
  EXPECT_EQ(measure_lengths({5}).percentiles, (std::array<int64_t, 7>{5, 5, 5, 5, 5, 5, 5}));
}

TEST_F(Preprocess, StatisticsCountEndOfDocumentTokens) {
  write_file(dir_ / "in.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  options_.append_eod = true;
  run();
  const IndexedDataset dataset(result_.sets[0].prefix);
  const DatasetStatistics seen = measure(dataset, 256);
  EXPECT_EQ(seen.eod_tokens, 2);
  EXPECT_EQ(seen.documents_ended, 2);
  EXPECT_EQ(seen.documents, 3);
  EXPECT_EQ(measure(dataset, 1 << 22).eod_tokens, 0);
  EXPECT_EQ(measure(dataset).documents_ended, 0);
}

TEST_F(Preprocess, MalformedUtf8IsKeptAndCounted) {
  write_file(dir_ / "a.txt", "good");
  write_file(dir_ / "b.txt", "b\xFF\x80");
  options_.inputs = {dir_ / "a.txt", dir_ / "b.txt"};
  EXPECT_EQ(run(), (std::vector<std::string>{"good", "b\xFF\x80"}));
  EXPECT_EQ(result_.malformed_documents, 1);
}

TEST_F(Preprocess, PathsAreReadFromAList) {
  write_file(dir_ / "a.txt", "A");
  write_file(dir_ / "b.jsonl", "{\"text\": \"B\"}");
  write_file(dir_ / "list", dir_ / "b.jsonl" + "\n\n" + (dir_ / "a.txt") + "\n");
  options_.inputs = {dir_ / "list"};
  options_.format = InputFormat::kPaths;
  EXPECT_EQ(run(), (std::vector<std::string>{"B", "A"}));
}

TEST_F(Preprocess, BadInputNamesFileAndLine) {
  std::string many;
  for (int i = 0; i < 100000; ++i) many += "{\"text\": \"some text\"}\n";
  write_file(dir_ / "in.jsonl", many + "{\"text\": \"cut\n");
  options_.inputs = {dir_ / "in.jsonl"};
  refuse(ErrorCode::kCorruptData, "in.jsonl:100001: not JSON");
  write_file(dir_ / "in.jsonl", "{\"text\": \"a\"}\n{\"txt\": 1}\n");
  refuse(ErrorCode::kCorruptData, "in.jsonl:2: no key \"text\"");
  write_file(dir_ / "in.jsonl", "{\"text\": 5}\n");
  refuse(ErrorCode::kCorruptData, "in.jsonl:1: \"text\" is a number, expected a string or a list of strings");
  write_file(dir_ / "in.jsonl", "{\"text\": [\"a\", [\"b\"]]}\n");
  refuse(ErrorCode::kCorruptData, "in.jsonl:1: \"text\" holds an array, expected a string or a list of strings");
  write_file(dir_ / "in.jsonl", "\n[1]\n");
  refuse(ErrorCode::kCorruptData, "in.jsonl:2: expected a JSON object");
  write_file(dir_ / "in.jsonl", "{\"text\": \"\xFF\"}\n");
  refuse(ErrorCode::kCorruptData, "in.jsonl:1: not JSON");
}

TEST_F(Preprocess, BadLinesAreSkippedAndCountedIfRequested) {
  write_file(
      dir_ / "in.jsonl",
      "{\"text\": \"a\", \"b\": \"1\"}\nnot json\n{\"text\": \"lost\"}\n{\"text\": \"lost\", \"b\": [\"x\", 5]}\n[]\n"
      "{\"text\": \"\xFF\", \"b\": \"\"}\n{\"text\": \"c\", \"b\": \"2\"}\n");
  options_.inputs = {dir_ / "in.jsonl"};
  options_.json_keys = {"text", "b"};
  options_.skip_bad_lines = true;
  EXPECT_EQ(run(), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(documents(dir_ / "out_b_document"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(result_.skipped_lines, 5);
  EXPECT_THAT(result_.first_skipped_line, HasSubstr("in.jsonl:2: not JSON"));
  EXPECT_EQ(result_.malformed_documents, 0);

  // Also lines that the tokenizer refuses.
  write_file(dir_ / "in.jsonl", "{\"text\": \"1 2\"}\n{\"text\": \"3 four\"}\n{\"text\": \"5\"}\n");
  options_.json_keys = {"text"};
  options_.tokenizer.tokenizer_type = "NullTokenizer";
  options_.tokenizer.vocab_size = 9;
  result_ = preprocess(options_, never);
  EXPECT_EQ(result_.skipped_lines, 1);
  EXPECT_EQ(result_.sets[0].documents, 2);
  EXPECT_EQ(result_.sets[0].tokens, 3);
}

TEST_F(Preprocess, InvalidOptionsAreRefused) {
  write_file(dir_ / "a.txt", "A");
  const PreprocessOptions good = options_;
  refuse(ErrorCode::kInvalidArgument, "no input");
  options_.inputs = {dir_ / "none.txt"};
  refuse(ErrorCode::kNotFound, "none.txt");
  options_.inputs = {dir_ / "a.txt"};
  options_.output_prefix = dir_ / "a.txt/out";  // a file where a folder is needed
  refuse(ErrorCode::kIo, "a.txt");
  options_.output_prefix = good.output_prefix;
  options_.workers = -1;
  refuse(ErrorCode::kInvalidArgument, "--workers");
  options_.workers = 1;
  options_.json_keys = {"a", "b", "a"};
  refuse(ErrorCode::kInvalidArgument, "\"a\" twice");
  options_.json_keys = {"a"};
  options_.tokenizer.tokenizer_type = "X";
  refuse(ErrorCode::kInvalidArgument, "--tokenizer-type X");
  EXPECT_THROW(parse_input_format("csv"), Error);
}

TEST_F(Preprocess, CreatesTheFolderOfThePrefix) {
  write_file(dir_ / "a.txt", "A");
  options_.inputs = {dir_ / "a.txt"};
  options_.output_prefix = dir_ / "new/folder/out";
  preprocess(options_, [] { return false; });
  EXPECT_EQ(documents(dir_ / "new/folder/out_text_document"), (std::vector<std::string>{"A"}));
}

TEST_F(Preprocess, StoppingLeavesTheOldDataSet) {
  write_file(dir_ / "a.txt", "old");
  options_.inputs = {dir_ / "a.txt"};
  run();
  std::string many;
  for (int i = 0; i < 200000; ++i) many += "{\"text\": \"some text\"}\n";
  write_file(dir_ / "in.jsonl", many);
  options_.inputs = {dir_ / "in.jsonl"};
  int asked = 0;
  EXPECT_THROW(preprocess(options_, [&] { return ++asked > 10; }), Error);
  EXPECT_EQ(documents(dir_ / "out_text_document"), (std::vector<std::string>{"old"}));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 4);  // the two inputs, .bin and .idx
}

}  // namespace
}  // namespace ms::train

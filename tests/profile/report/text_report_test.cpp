// The page of `msprof analyze`: what is lost, largest first, and the kernels that computing goes to, over all ranks.
#include "profile/report/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/ingest/load.h"
#include "profile/report/table.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string page(const std::vector<std::string>& files) {
  const Store store = load(files, {});
  return analyze_text(store, analyze(store, sections::every()), {"traces"});
}

TEST(AnalyzeText, NamesTheThreeKernelsThatTakeMostOverAllRanks) {
  const test::TemporaryFolder folder;
  std::vector<std::string> files;
  for (int rank = 0; rank < 2; ++rank) {
    test::TraceMaker maker(folder.path(), rank, 2);
    maker.host("ProfilerStep#1", 0, 4'000'000);
    maker.kernel("gemm", 100'000, 900'000);
    maker.kernel("softmax", 1'000'000, rank == 0 ? 1'100'000 : 1'500'000);
    maker.kernel("norm", 2'000'000, 2'200'000);
    maker.kernel("rope", 3'000'000, 3'100'000);
    files.push_back(maker.finish());
  }
  const std::string text = page(files);
  EXPECT_THAT(text, HasSubstr("2 ranks, 2 files; 1 step, 4.00 ms each on average\n"));
  EXPECT_THAT(text, HasSubstr("Where computing goes:\n"
                              "  1.60 ms  57.14 %  gemm\n"
                              "  0.60 ms  21.43 %  softmax\n"
                              "  0.40 ms  14.29 %  norm\n"
                              "      msprof kernels traces\n"));
  EXPECT_THAT(text, Not(HasSubstr("rope")));
}

TEST(ReadableName, DropsReturnTypeNamespacesAndParameters) {
  const std::pair<const char*, const char*> cases[] = {
      {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, float*)",
       "vectorized_elementwise_kernel<4, AddFunctor<float>>"},
      {"void (anonymous namespace)::softmax_warp_forward<float, float, 10>(float*, int)",
       "softmax_warp_forward<float, float, 10>"},
      {"volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"},
      {"aten::addmm", "aten::addmm"},
      {"Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"},
      {"", ""}};
  for (const auto& [name, wanted] : cases) EXPECT_EQ(readable_name(name), wanted) << name;
}

TEST(AnalyzeText, SaysWhatIsThereWithoutADevice) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1'000'000);
  EXPECT_THAT(page({maker.finish()}), HasSubstr("no device events: nothing to analyse; msprof info traces shows"));
}

}  // namespace
}  // namespace ms::profile

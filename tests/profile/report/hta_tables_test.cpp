// Under the words and in the units of Holistic Trace Analysis.
#include "profile/report/hta_tables.h"

#include <gtest/gtest.h>

#include "profile/report/json_hta.h"

namespace ms::profile {
namespace {

constexpr HtaBreakdown kBreakdown{
    .idle = 1000, .compute = 3000, .non_compute = 4000, .kernel = 8000, .overlap = 1000, .communication = 4000};

HtaRank rank_of(int number) {
  HtaRank rank;
  rank.rank = number;
  rank.breakdown = kBreakdown;
  return rank;
}

TEST(HtaTables, TimesAndTheirSharesOfKernelTime) {
  HtaResults results;
  results.ranks.push_back(rank_of(5));
  const std::vector<DataTable> tables = hta_breakdown_tables(results);
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].csv(),
            "rank,idle_time_us,compute_time_us,non_compute_time_us,kernel_time_us,idle_time_pct,compute_time_pct,"
            "non_compute_time_pct\r\n"
            "5,1.000,3.000,4.000,8.000,12.5000,37.5000,50.0000\r\n");
  EXPECT_EQ(tables[1].csv(), "rank,comp_comm_overlap_pct\r\n5,25.0000\r\n");
}

TEST(HtaTables, OnlyWhatThereIs) {
  HtaResults results;
  results.ranks.push_back(rank_of(0));
  results.ranks[0].idle.push_back({7, {std::nullopt, 3000, 1000}});
  results.ranks[0].queues[7] = hta_summary({1, 2});
  results.ranks[0].bandwidths["Memset"] = hta_summary({2.5});
  const std::vector<DataTable> tables = hta_tables(results);
  ASSERT_EQ(tables.size(), 5u) << "no steps, no stragglers";
  EXPECT_EQ(tables[2].csv(),
            "rank,stream,idle_category,idle_time_us,idle_time_pct\r\n"
            "0,7,kernel_wait,3.000,75.0000\r\n"
            "0,7,other,1.000,25.0000\r\n");
  EXPECT_EQ(tables[3].csv(),
            "rank,stream,count,mean,std,min,p25,p50,p75,max\r\n"
            "0,7,2,1.500000,0.707107,1.000000,1.250000,1.500000,1.750000,2.000000\r\n");
  EXPECT_EQ(tables[4].csv(),
            "rank,name,count,mean,std,min,p25,p50,p75,max\r\n"
            "0,Memset,1,2.500000,,2.500000,2.500000,2.500000,2.500000,2.500000\r\n");
}

TEST(HtaTables, JsonUnderItsOwnWords) {
  HtaResults results;
  results.steps = {4, 5};
  results.ranks.push_back(rank_of(3));
  results.ranks[0].idle.push_back({7, {std::nullopt, std::nullopt, 0}});
  results.ranks.push_back({});  // without events on streams
  results.ranks[1].rank = 8;
  results.stragglers = {3};
  JsonWriter json(/*pretty=*/false);
  write_hta(json, results);
  EXPECT_EQ(json.take(),
            R"j({"profiler_steps":[4,5],"temporal_breakdown":[{"rank":3,"idle_time(us)":1.000,)j"
            R"j("compute_time(us)":3.000,"non_compute_time(us)":4.000,"kernel_time(us)":8.000,)j"
            R"j("idle_time_pctg":12.50,"compute_time_pctg":37.50,"non_compute_time_pctg":50.00}],)j"
            R"j("comm_comp_overlap":[{"rank":3,"comp_comm_overlap_pctg":25.00},)j"
            R"j({"rank":8,"comp_comm_overlap_pctg":null}],"idle_time_breakdown":[{"rank":3,"stream":7,)j"
            R"j("idle_category":"other","idle_time":0.000,"idle_time_ratio":null}],"queue_length_summary":[],)j"
            R"j("memory_bw_summary":[],"potential_stragglers":[3]})j"
            "\n");
}

}  // namespace
}  // namespace ms::profile

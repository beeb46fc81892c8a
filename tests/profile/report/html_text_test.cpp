// Text cannot leave the place in the page where it stands.
#include "profile/report/html_text.h"

#include <gtest/gtest.h>

namespace ms::profile {
namespace {

TEST(HtmlText, MarkupIsEscaped) {
  EXPECT_EQ(html_text("<a href='x'>\"&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;&lt;/a&gt;");
}

TEST(HtmlText, ControlCharactersAreBlanksAndBytesValid) {
  EXPECT_EQ(html_text("a\x01\x7f\nb"), "a  \nb");
  EXPECT_EQ(html_text("\xff"), "\xef\xbf\xbd");
}

TEST(HtmlText, JsonInAScriptHoldsNoLessThanSign) {
  EXPECT_EQ(script_json("[\"</script><!--\"]"), "[\"\\u003c/script>\\u003c!--\"]");
}

}  // namespace
}  // namespace ms::profile

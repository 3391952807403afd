// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/source_suite.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {
namespace {

class FileWorld : public SourceWorld {
 public:
  explicit FileWorld(Confinement confinement)
      : source_(MakeFileSource(folder_.Open(), confinement)) {}

  std::string Put(const std::string& name, const std::string& bytes) override {
    folder_.Write(name, bytes);
    return name;
  }
  std::string Missing() override { return "no/such/file.jpg"; }
  Source* source() override { return source_.get(); }

 private:
  TempFolder folder_;
  std::unique_ptr<Source> source_;
};

INSTANTIATE_TEST_SUITE_P(Files, SourceSuite, testing::Values([] {
                           return std::make_unique<FileWorld>(Confinement::kNone);
                         }));
INSTANTIATE_TEST_SUITE_P(FilesBeneath, SourceSuite, testing::Values([] {
                           return std::make_unique<FileWorld>(Confinement::kBeneath);
                         }));

}  // namespace
}  // namespace batchd

// Times a policy's decisions in release or development mode; see
// inference.py, which builds it.
//
//   bench release|development MODEL_DIRECTORY INPUTS DECISIONS OUTPUT
//
// INPUTS holds rows of all features, in the order and types of features.inc.
// The rows are decided in turn, DECISIONS times in all; the decisions are
// written to OUTPUT as int64, and the median time of one, in nanoseconds, is
// printed.

#include MODEL_HEADER
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/Analysis/Utils/TFUtils.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using namespace llvm;

namespace {

struct Feature {
  const char *Name;
  TensorSpec Spec;
};

const std::vector<Feature> Features = {
#define FEATURE(TYPE, NAME, ...)                                               \
  {NAME, TensorSpec::createSpec<TYPE>("action_" NAME, {__VA_ARGS__})},
#include "features.inc"
#undef FEATURE
};

[[noreturn]] void fail(const std::string &Message) {
  std::fprintf(stderr, "error: %s\n", Message.c_str());
  std::exit(1);
}

class Policy {
public:
  virtual ~Policy() = default;
  virtual void *input(size_t Index) = 0;
  virtual int64_t decide() = 0;
};

class ReleasePolicy final : public Policy {
public:
  void *input(size_t Index) override {
    std::string Name = std::string("feed_") + Features[Index].Name;
    int Argument = Model.LookupArgIndex(Name);
    if (Argument < 0)
      fail("the compiled model has no input " + Name);
    return Model.arg_data(Argument);
  }
  int64_t decide() override {
    Model.Run();
    return *static_cast<int64_t *>(Model.result_data(0));
  }

private:
  MODEL_CLASS Model;
};

class DevelopmentPolicy final : public Policy {
public:
  explicit DevelopmentPolicy(const char *Directory)
      : Evaluator(
            Directory, inputSpecs(),
            {TensorSpec::createSpec<int64_t>("StatefulPartitionedCall", {1})}) {
    if (!Evaluator.isValid())
      fail(Evaluator.getErrorMessage());
  }
  void *input(size_t Index) override {
    return Evaluator.getUntypedInput(Index);
  }
  int64_t decide() override {
    auto Result = Evaluator.evaluate();
    if (!Result)
      fail(Evaluator.getErrorMessage());
    return *Result->getTensorValue<int64_t>(0);
  }

private:
  static std::vector<TensorSpec> inputSpecs() {
    std::vector<TensorSpec> Specs;
    for (const Feature &F : Features)
      Specs.push_back(F.Spec);
    return Specs;
  }
  TFModelEvaluator Evaluator;
};

} // namespace

// Callgrind counts what happens in here.
extern "C" __attribute__((noinline)) int64_t decideOnce(Policy &P) {
  return P.decide();
}

int main(int ArgC, char **ArgV) {
  if (ArgC != 6)
    fail("usage: bench MODE MODEL_DIRECTORY INPUTS DECISIONS OUTPUT");
  std::unique_ptr<Policy> P;
  if (!std::strcmp(ArgV[1], "release"))
    P = std::make_unique<ReleasePolicy>();
  else
    P = std::make_unique<DevelopmentPolicy>(ArgV[2]);
  std::ifstream File(ArgV[3], std::ios::binary);
  const std::vector<char> Rows{std::istreambuf_iterator<char>(File), {}};
  const size_t Decisions = std::strtoul(ArgV[4], nullptr, 10);

  std::vector<void *> Inputs;
  for (size_t I = 0; I < Features.size(); ++I)
    Inputs.push_back(P->input(I));
  std::vector<int64_t> Decided;
  std::vector<double> Times;
  size_t Position = 0;
  for (size_t N = 0; N < Decisions; ++N) {
    if (Position == Rows.size())
      Position = 0;
    for (size_t I = 0; I < Features.size(); ++I) {
      const size_t Size = Features[I].Spec.getTotalTensorBufferSize();
      if (Position + Size > Rows.size())
        fail(std::string(ArgV[3]) + ": not whole rows");
      std::memcpy(Inputs[I], &Rows[Position], Size);
      Position += Size;
    }
    const auto Start = std::chrono::steady_clock::now();
    const int64_t Decision = decideOnce(*P);
    const auto End = std::chrono::steady_clock::now();
    Times.push_back(
        std::chrono::duration<double, std::nano>(End - Start).count());
    Decided.push_back(Decision);
  }
  std::ofstream Output(ArgV[5], std::ios::binary);
  Output.write(reinterpret_cast<const char *>(Decided.data()),
               Decided.size() * sizeof(int64_t));
  std::nth_element(Times.begin(), Times.begin() + Times.size() / 2,
                   Times.end());
  std::printf("%.0f\n", Times[Times.size() / 2]);
  return 0;
}

// A loop passes a local by its address to a call that never runs: while that is
// a call, the local has to be in memory. Its argument is the number of rounds.
#include <cstdio>
#include <cstdlib>
#include <vector>
struct Pair {
  unsigned char low, high;
};
__attribute__((noinline)) void split(const unsigned char *p,
                                     const unsigned char *end,
                                     std::vector<Pair> &out) {
  out.clear();
  for (; p < end; ++p) {
    Pair pair;
    if (*p < 0x80) {
      pair.low = *p;
      pair.high = 0;
      out.push_back(pair);
    } else {
      // Never in this run.
      pair.low = *p & 0x3f;
      pair.high = *p >> 6;
      out.push_back(pair);
    }
  }
}
int main(int argc, char **argv) {
  std::vector<unsigned char> text(20000, 'a');
  std::vector<Pair> pairs;
  long sum = 0;
  for (int round = 0; round < std::atoi(argv[1]); ++round) {
    split(text.data(), text.data() + text.size(), pairs);
    for (const Pair &pair : pairs)
      sum += pair.low;
  }
  std::printf("%ld\n", sum);
}

// One of two modules that the guides build with link-time optimisation.
#include <cstdio>
int scale(int x, int y);
int main(int argc, char **) {
  int sum = 0;
  for (int i = 0; i < 10 * argc; ++i)
    sum += scale(i, sum) - scale(sum, i);
  std::printf("%d\n", sum);
}

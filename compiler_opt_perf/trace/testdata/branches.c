// Branches of known kinds, each in a function of its own; asm keeps them branches.
#include <stdint.h>
#include <stdlib.h>

#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define FUNCTION __attribute__((noinline)) int

static uint32_t state = 42;

// As a coin falls.
FUNCTION by_chance(int sum) {
  state = state * 1664525 + 1013904223;
  if (state >> 31)
    KEEP(sum);
  return sum + 1;
}

// One turn in seven.
FUNCTION in_turn(int sum, int turn) {
  if (turn % 7 == 3)
    KEEP(sum);
  return sum + 1;
}

// Leaves a loop after twenty rounds.
FUNCTION in_rounds(int sum) {
  for (int round = 0; round < 20; round++)
    KEEP(sum);
  return sum;
}

// To one of eight places, in a fixed order: a predictor has to know more than the last.
FUNCTION to_places(int sum, int turn) {
  switch ("\0\3\1\7\2\2\5\6\4\1\3"[turn % 11]) {
  case 0: sum += 1; KEEP(sum); break;
  case 1: sum ^= 2; KEEP(sum); break;
  case 2: sum -= 3; KEEP(sum); break;
  case 3: sum |= 4; KEEP(sum); break;
  case 4: sum &= 5; KEEP(sum); break;
  case 5: sum += 6; KEEP(sum); break;
  case 6: sum ^= 7; KEEP(sum); break;
  case 7: sum -= 8; KEEP(sum); break;
  }
  return sum;
}

// Calls itself, so that callers' and callees' blocks are of one function.
FUNCTION itself(int depth) { return depth ? itself(depth - 1) + itself(depth - 1) + 1 : 0; }

int main(int argc, char **argv) {
  int turns = argc > 1 ? atoi(argv[1]) : 1000, sum = 0;
  for (int turn = 0; turn < turns; turn++) {
    sum = by_chance(sum);
    sum = in_turn(sum, turn);
    sum = in_rounds(sum);
    sum = to_places(sum, turn);
    sum += itself(3);
  }
  return sum == 1;
}

// What the guides profile and trace: a table that is searched, and a loop whose branch is random.
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 1 << 12, ROUNDS = 3000 };
struct slot {
  unsigned key, value;
};
static struct slot table[SLOTS];

static unsigned next_random(unsigned *state) {
  return *state = *state * 1664525u + 1013904223u;
}

static struct slot *find(unsigned key) {
  unsigned place = (key * 2654435761u) % SLOTS;
  while (table[place].key && table[place].key != key)
    place = (place + 1) % SLOTS;
  return &table[place];
}

static void put(unsigned key, unsigned value) {
  struct slot *slot = find(key);
  slot->key = key;
  slot->value = value;
}

__attribute__((noinline)) unsigned handle_get(unsigned key) {
  struct slot *slot = find(key);
  return slot->key ? slot->value : 0;
}

int main(void) {
  unsigned state = 1, sum = 0;
  for (unsigned i = 0; i < ROUNDS; ++i)
    put(next_random(&state) % 2000 + 1, i);
  for (unsigned i = 0; i < ROUNDS; ++i)
    if (next_random(&state) & 0x10000)
      sum += handle_get(next_random(&state) % 4000 + 1);
    else
      sum ^= i;
  printf("%u\n", sum);
  return 0;
}

// The other one.
static int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
int scale(int x, int y) { return clamp(x, 2, 7) * clamp(y, 1, 5) - clamp(x + y, 0, 3); }

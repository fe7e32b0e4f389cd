// Decodes grey pixels with an opacity. Escaped pixels never occur in this program's input. If the
// call that keeps one stays a call, the pixel has its address taken, and the hot loop writes its
// bytes to memory one by one and reads both at once, which stalls the processor.
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Pixel {
  unsigned char Grey, Opacity;
};

__attribute__((noinline)) static void decode(const std::vector<unsigned char> &Bytes,
                                             std::vector<Pixel> &Pixels) {
  const unsigned char *At = Bytes.data(), *End = At + Bytes.size();
  Pixels.clear();
  while (At < End) {
    Pixel One;
    if (*At < 0xf0) {
      One.Opacity = 0xff;
      One.Grey = *At++;
      Pixels.push_back(One);
    } else if (*At < 0xff && End - At > 1) {
      One.Opacity = (unsigned char)(*At << 4);
      One.Grey = At[1];
      At += 2;
      Pixels.push_back(One);
    } else {
      One.Opacity = One.Grey = 0;
      ++At;
      Pixels.push_back(One);
    }
  }
}

int main(int argc, char **argv) {
  std::vector<unsigned char> Bytes;
  std::vector<Pixel> Pixels;
  unsigned State = 1, Rounds = argc > 1 ? atoi(argv[1]) : 1000;
  unsigned long Sum = 0;
  for (int I = 0; I < 20000; ++I)
    Bytes.push_back((State = State * 1103515245 + 12345) >> 16 & 0x7f);
  while (Rounds--) {
    decode(Bytes, Pixels);
    for (Pixel One : Pixels)
      Sum += One.Grey;
  }
  printf("%lu\n", Sum);
}

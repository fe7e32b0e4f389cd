//===- CoreResourcesTest.cpp - Queues and ports ---------------------------===//
//
// Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions.
// See https://llvm.org/LICENSE.txt for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CoreResources.h"
#include "gtest/gtest.h"

using namespace llvm::tracecost;

namespace {

TEST(EntryPoolTest, FullQueueWaitsForTheEntryFreedFirst) {
  EntryPool Pool(2);
  EXPECT_EQ(Pool.allocate(5), 5u);
  Pool.free(20);
  EXPECT_EQ(Pool.allocate(6), 6u);
  Pool.free(10);
  // Full: the entry that is free at 10, then the one at 20.
  EXPECT_EQ(Pool.allocate(7), 10u);
  Pool.free(11);
  EXPECT_EQ(Pool.allocate(7), 11u);
  Pool.free(100);
  EXPECT_EQ(Pool.allocate(7), 20u);
  Pool.free(30);
  // One that comes late does not wait.
  EXPECT_EQ(Pool.allocate(50), 50u);
}

TEST(EntryPoolTest, LimitsOverlap) {
  // Loads of 200 cycles, one a cycle, through four entries.
  EntryPool Pool(4);
  unsigned Last = 0;
  for (unsigned Cycle = 0; Cycle != 100; ++Cycle) {
    Last = Pool.allocate(Cycle);
    Pool.free(Last + 200);
  }
  EXPECT_EQ(Last, 24 * 200 + 3u);
}

TEST(PortTableTest, BusyPortsAreNotTaken) {
  PortTable Ports;
  EXPECT_EQ(Ports.occupy(0b1, 1, 3), 3u);
  EXPECT_EQ(Ports.occupy(0b1, 1, 3), 4u);
  // The other port is free.
  EXPECT_EQ(Ports.occupy(0b11, 1, 3), 3u);
  EXPECT_EQ(Ports.occupy(0b11, 1, 3), 4u);
  EXPECT_EQ(Ports.occupy(0b11, 1, 3), 5u);
}

TEST(PortTableTest, ALongUseNeedsAGapThatIsLongEnough) {
  PortTable Ports;
  EXPECT_EQ(Ports.occupy(0b1, 1, 2), 2u);
  EXPECT_EQ(Ports.occupy(0b1, 1, 6), 6u);
  EXPECT_EQ(Ports.occupy(0b1, 4, 0), 7u);
  EXPECT_EQ(Ports.occupy(0b1, 3, 0), 3u);
}

TEST(PortTableTest, TheLeastUsedPortIsBound) {
  PortTable Ports;
  // Port 1 has been used more often.
  EXPECT_EQ(Ports.occupy(0b10, 1, 0), 0u);
  EXPECT_EQ(Ports.occupy(0b10, 1, 1), 1u);
  EXPECT_EQ(Ports.occupy(0b11, 1, 5), 5u);
  // So port 0 is busy now, and port 1 is not.
  EXPECT_EQ(Ports.occupy(0b01, 1, 5), 6u);
  EXPECT_EQ(Ports.occupy(0b10, 1, 5), 5u);
}

} // namespace

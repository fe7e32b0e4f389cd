// What a precompiled header needs: a unit of its own.

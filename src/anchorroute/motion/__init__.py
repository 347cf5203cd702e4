"""What is generated: skeleton, rotations, features, the body, and the files a motion is written to."""
